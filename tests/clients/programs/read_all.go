//go:build ignore

// Reads the first COUNT records of partition 0 of a topic with Log.Fetch or Log.Subscribe, on a connection with default
// limits, and prints how many there were, their bytes, and a digest of their values.
//
// go run read_all.go ADDRESS TOPIC CALL COUNT
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "example.com/orders/sparklogv1"
)

func main() {
	address, topic, call := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()

	next, size, digest := int64(0), 0, sha256.New()
	receive := receiver(pb.NewLogClient(conn), topic, call)
	for next < count {
		answer, err := receive(next)
		check(err)
		for _, part := range answer.Partitions {
			if part.Error != nil {
				log.Fatalf("%s: %s", part.Error.Name, part.Error.Message)
			}
			for _, record := range part.GetRecords().GetRecords() {
				if record.Offset != next {
					log.Fatalf("offset %d comes where %d should", record.Offset, next)
				}
				next, size = next+1, size+len(record.Value)
				digest.Write(record.Value)
			}
			if part.NextOffset != next {
				log.Fatalf("the next offset is %d, after the record at %d", part.NextOffset, next-1)
			}
		}
	}
	fmt.Printf("%d records, %d bytes, sha256 %x\n", next, size, digest.Sum(nil))
}

// receiver returns what gives one answer after another; it is told the offset of the next record.
func receiver(client pb.LogClient, topic, call string) func(int64) (*pb.FetchResponse, error) {
	ctx := context.Background()
	if call == "Fetch" {
		return func(next int64) (*pb.FetchResponse, error) {
			wanted := []*pb.PartitionFetch{{Topic: topic, FetchOffset: next}}
			return client.Fetch(ctx, &pb.FetchRequest{Format: pb.Format_RECORDS, MaxWaitMs: 500, Partitions: wanted})
		}
	}
	wanted := []*pb.PartitionFetch{{Topic: topic}}
	stream, err := client.Subscribe(ctx, &pb.SubscribeRequest{Format: pb.Format_RECORDS, Partitions: wanted})
	check(err)
	return func(int64) (*pb.FetchResponse, error) { return stream.Recv() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
