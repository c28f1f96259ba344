"""Messages of Protobuf schemas, from the output of protoc and from registries."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from sparklog.base.errors import SchemaError
from sparklog.schemas.protobuf import FieldKind
from sparklog.schemas.protobuf_descriptors import from_descriptor_set, from_registry, from_text, message_names
from support.schemas.protobuf import compiled

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  oneof pay { string card = 3; Cash cash = 4; }
  map<string, Line> lines = 5;
  google.protobuf.Timestamp at = 6;
  State state = 7;
  enum State { option allow_alias = true; OPEN = 0; NEW = 0; DONE = 3; }
  message Cash { double amount = 1; }
  message Line { int32 count = 1; }
}
message Customer { string name = 1; }
"""


def test_what_protoc_writes(tmp_path: Path) -> None:
    content = compiled(ORDERS, tmp_path)
    order = from_descriptor_set(content).message("shop.Order")
    assert order == from_descriptor_set(content).message("Order")
    fields = {each.name: each for each in order.fields}
    assert [each.number for each in order.fields] == [1, 2, 3, 4, 5, 6, 7]
    assert (fields["id"].presence, fields["note"].presence, fields["card"].presence) == (False, True, True)
    assert (fields["note"].oneof, fields["card"].oneof, fields["cash"].oneof) == (None, "pay", "pay")
    assert fields["lines"].message is not None
    assert fields["lines"].message.is_entry
    assert fields["state"].enum is not None
    assert fields["state"].enum.symbols == ((0, "OPEN"), (3, "DONE"))
    assert not fields["state"].enum.closed
    assert fields["at"].kind is FieldKind.MESSAGE


def test_a_schema_is_a_file_or_its_base64(tmp_path: Path) -> None:
    content = compiled(ORDERS, tmp_path)
    path = tmp_path / "orders.desc"
    path.write_bytes(content)
    for text in (str(path), base64.b64encode(content).decode()):
        assert from_text(text).message("Customer").name == "shop.Customer"
    with pytest.raises(SchemaError, match=r"neither the file of a FileDescriptorSet, nor its base64: .*No such file"):
        from_text("nothing.desc")
    path.write_text(ORDERS)
    with pytest.raises(SchemaError, match="no FileDescriptorSet, such as `protoc --descriptor_set_out` writes"):
        from_text(str(path))


def test_which_message_must_be_said_if_there_are_several(tmp_path: Path) -> None:
    files = from_descriptor_set(compiled(ORDERS, tmp_path))
    with pytest.raises(SchemaError, match=r"has 2 messages: give the name of one; it has shop.Customer, shop.Order"):
        files.message(None)
    with pytest.raises(SchemaError, match=r"has no message Basket; it has shop.Customer, shop.Order, shop.Order.Cash"):
        files.message("Basket")
    only = 'syntax = "proto3"; message Only { string name = 1; }'
    assert from_descriptor_set(compiled(only, tmp_path)).message(None).name == "Only"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M { repeated M children = 1; }", r"M contains itself \(M → M\), and Spark has no type for that"),
        ("message M { A a = 1; } message A { map<int32, M> m = 1; }", r"contains itself \(M → A → A.MEntry → M\)"),
        ('import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }', "contains itself"),
        ("message M { optional group G = 1 { optional int32 a = 1; } }", "M.g is a group, which is not read"),
    ],
)
def test_what_has_no_type_in_spark_is_refused_with_the_place(tmp_path: Path, text: str, reason: str) -> None:
    syntax = "proto2" if "group" in text else "proto3"
    files = from_descriptor_set(compiled(f'syntax = "{syntax}"; {text}', tmp_path))
    with pytest.raises(SchemaError, match=reason):
        files.message("M")


def test_a_registrys_schema_imports_others_by_their_names(tmp_path: Path) -> None:
    compiled('syntax = "proto3"; package base; message Money { int64 cents = 1; }', tmp_path, "base/money.proto")
    text = """
        syntax = "proto3"; package shop; import "base/money.proto"; import "google/protobuf/duration.proto";
        message Order { base.Money price = 1; google.protobuf.Duration open = 2; message Line { int32 a = 1; } }
        message Other { string s = 1; }
    """
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled(text, tmp_path)).file
    serialized = {}
    for each in files:
        name, each.name = each.name, "default"  # as Confluent's registry gives it
        serialized[name] = base64.b64encode(each.SerializeToString()).decode()
    main = serialized["orders.proto"]
    order = from_registry(main, {"base/money.proto": serialized["base/money.proto"]}).message("Order")
    assert [each.message and each.message.name for each in order.fields] == ["base.Money", "google.protobuf.Duration"]
    assert message_names(main) == {(0,): "shop.Order", (0, 0): "shop.Order.Line", (1,): "shop.Other"}
    with pytest.raises(SchemaError, match=r"not valid: .*; it imports base/money.proto, which are not given"):
        from_registry(main, {})
    with pytest.raises(SchemaError, match="it does not know format=serialized"):
        from_registry(text, {})


def test_files_of_custom_options_may_be_missing(tmp_path: Path) -> None:
    option = """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string unit = 50000; }
    """
    compiled(option, tmp_path, "unit.proto")
    text = 'syntax = "proto3"; import "unit.proto"; message M { int32 n = 1 [(unit) = "ms"]; }'
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled(text, tmp_path)).file
    alone = descriptor_pb2.FileDescriptorSet(file=[each for each in files if each.name == "orders.proto"])
    assert from_descriptor_set(alone.SerializeToString()).message(None).fields[0].name == "n"
