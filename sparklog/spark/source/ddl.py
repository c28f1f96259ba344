"""Parser of schemas as Spark's SQL writes them: ``id bigint, items array<struct<sku: string, count: int>>``.

Spark's own parser runs in the JVM, which a Python process that plans a read cannot reach.
"""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.base.errors import SchemaError

MOST_DEPTH = 50

_SIMPLE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|'((?:[^'\\]|\\.)*)'|(\w+)|([<>(),:]))")


def parse_ddl(text: str) -> StructType:
    """Return the columns in a text. Raises SchemaError, with the place, if it is not valid or has an unknown type."""
    parser = _DdlParser(text)
    if parser.accept("struct") and parser.accept("<"):
        fields = parser.fields(0)
        parser.expect(">")
    else:
        parser = _DdlParser(text)
        fields = parser.fields(0)
    if parser.kind != "end":
        raise parser.wrong("a comma or the end")
    return fields


class _DdlParser:
    """A text and its current token: the kind (name, quoted, text, sign, end) and the content."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._after = 0
        self.kind, self.token, self._start = "end", "", 0
        self._advance()

    def fields(self, depth: int) -> StructType:
        found = [self._field(depth)]
        while self.accept(","):
            found.append(self._field(depth))
        names = [each.name.lower() for each in found]
        if len(set(names)) < len(names):
            raise SchemaError(f"the schema {self._text!r} has two fields of one name")
        return StructType(found)

    def accept(self, token: str) -> bool:
        """If the current token is this word or sign, move to the next one; return whether it was."""
        if self.kind not in ("name", "sign") or self.token.lower() != token:
            return False
        self._advance()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.wrong(f"{token!r}")

    def wrong(self, expected: str) -> SchemaError:
        rest = self._text[self._start :] or "the end"
        return SchemaError(f"the schema {self._text!r} must have {expected} where it has {rest[:30]!r}")

    def _field(self, depth: int) -> StructField:
        if self.kind not in ("name", "quoted"):
            raise self.wrong("the name of a field")
        name = self._advance()
        self.accept(":")
        of = self._type(depth + 1)
        nullable = True
        if self.accept("not"):
            self.expect("null")
            nullable = False
        if self.accept("comment"):
            if self.kind != "text":
                raise self.wrong("a text in quotes")
            self._advance()
        return StructField(name, of, nullable)

    def _type(self, depth: int) -> DataType:
        if depth > MOST_DEPTH:
            raise SchemaError(f"the schema has types nested more than {MOST_DEPTH} levels deep")
        if self.kind != "name":
            raise self.wrong("a type")
        if self.token.lower() in ("array", "map", "struct"):
            return self._nested(self._advance().lower(), depth)
        if self.accept("decimal") or self.accept("dec") or self.accept("numeric"):
            return self._decimal()
        if (of := _SIMPLE.get(self.token.lower())) is None:
            raise self.wrong("a type")
        self._advance()
        return of

    def _nested(self, kind: str, depth: int) -> DataType:
        self.expect("<")
        of: DataType
        if kind == "struct":
            of = self.fields(depth)
        elif kind == "array":
            of = ArrayType(self._type(depth + 1))
        else:
            key = self._type(depth + 1)
            self.expect(",")
            of = MapType(key, self._type(depth + 1))
        self.expect(">")
        return of

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self.accept("("):
            precision = self._digits()
            scale = self._digits() if self.accept(",") else 0
            self.expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(f"decimal({precision}, {scale}): at most 38 digits, of which the scale is a part")
        return DecimalType(precision, scale)

    def _digits(self) -> int:
        if not self.token.isdecimal():
            raise self.wrong("a number")
        return int(self._advance()[:4])

    def _advance(self) -> str:
        """Return the current token and move to the next one."""
        before = self.token
        found = _TOKEN.match(self._text, self._after)
        self._start = self._after
        if found is None:
            self._start += len(self._text[self._after :]) - len(self._text[self._after :].lstrip())
            self.kind, self.token = ("end", "") if self._start == len(self._text) else ("unknown", "")
            return before
        quoted, text, name, sign = found.groups()
        self._after = found.end()
        if quoted is not None:
            self.kind, self.token = "quoted", quoted.replace("``", "`")
        elif text is not None:
            self.kind, self.token = "text", text
        else:
            self.kind, self.token = ("name", name) if name else ("sign", sign)
        return before
