// Reads the first COUNT records of partition 0 of a topic with Log.Fetch or Log.Subscribe, on a connection with default
// limits, and prints how many there were, their bytes, and a digest of their values.
//
// node read_all.js ADDRESS TOPIC CALL COUNT
const { createHash } = require("node:crypto");
const { promisify } = require("node:util");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const files = loader.loadSync("sparklog/v1/log.proto", {
  includeDirs: ["sparklog/proto"], keepCase: true, longs: Number, enums: String, defaults: true,
});
const { Log } = grpc.loadPackageDefinition(files).sparklog.v1;

async function main(address, topic, call, count) {
  const client = new Log(address, grpc.credentials.createInsecure());
  const digest = createHash("sha256");
  let next = 0, size = 0;

  function take({ partitions: [part] }) {
    if (part.error) throw new Error(`${part.error.name}: ${part.error.message}`);
    for (const record of part.records?.records ?? []) {
      if (record.offset !== next) throw new Error(`offset ${record.offset} comes where ${next} should`);
      next += 1;
      size += record.value.length;
      digest.update(record.value);
    }
    if (part.next_offset !== next) throw new Error(`the next offset is ${part.next_offset}, not ${next}`);
  }

  if (call === "Fetch") {
    const fetch = promisify(client.Fetch.bind(client));
    while (next < count) {
      const partitions = [{ topic, partition: 0, fetch_offset: next }];
      take(await fetch({ format: "RECORDS", max_wait_ms: 500, partitions }));
    }
  } else {
    const stream = client.Subscribe({ format: "RECORDS", partitions: [{ topic, partition: 0 }] });
    for await (const answer of stream) {
      take(answer);
      if (next >= count) break;
    }
    stream.cancel(); // the end of the loop does not end the call
  }
  console.log(`${next} records, ${size} bytes, sha256 ${digest.digest("hex")}`);
  client.close();
}

const [address, topic, call, count] = process.argv.slice(2);
main(address, topic, call, Number(count));
