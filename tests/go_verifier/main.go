// Command verifier checks dumps of CacheMind's audit topics, with Go's standard
// library alone, written from schemas/README.md.
//
//	verifier keys.json dump.jsonl ...
//
// For each dump it prints a line of JSON: null where the dump verifies, else what is
// wrong first. It exits with 1 where any does not verify.
package main

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

type keysFile struct {
	LogID string `json:"log_id"`
	Root  []struct {
		KeyID string `json:"key_id"`
		PEM   string `json:"public_key_pem"`
	} `json:"root"`
}

type line struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Value     []byte `json:"value"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: verifier keys.json dump.jsonl ...")
		os.Exit(2)
	}
	keys := readKeys(os.Args[1])
	code := 0
	for _, path := range os.Args[2:] {
		found := verify(readDump(path), keys)
		told, err := json.Marshal(found)
		refuse(err)
		fmt.Println(string(told))
		if found != nil {
			code = 1
		}
	}
	os.Exit(code)
}

func readKeys(path string) pinned {
	content, err := os.ReadFile(path)
	refuse(err)
	var file keysFile
	refuse(json.Unmarshal(content, &file))
	roots := map[string][]byte{}
	for _, one := range file.Root {
		block, _ := pem.Decode([]byte(one.PEM))
		if block == nil || keyIDOf(block.Bytes) != one.KeyID {
			refuse(fmt.Errorf("root key %s is not what its PEM says", one.KeyID))
		}
		roots[one.KeyID] = block.Bytes
	}
	return pinned{file.LogID, roots}
}

func readDump(path string) dump {
	file, err := os.Open(path)
	refuse(err)
	defer file.Close()
	found := dump{receipts: map[int][][]byte{}}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var one line
		refuse(json.Unmarshal(lines.Bytes(), &one))
		switch {
		case strings.HasSuffix(one.Topic, ".audit.cuts"):
			found.cuts = append(found.cuts, one.Value)
		case strings.HasSuffix(one.Topic, ".audit"):
			found.receipts[one.Partition] = append(found.receipts[one.Partition], one.Value)
		}
	}
	refuse(lines.Err())
	return found
}

func refuse(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "verifier:", err)
		os.Exit(2)
	}
}
