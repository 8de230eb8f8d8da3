package main

// The headers: C3 01 and the CRC-64-AVRO of each schema, release 0.1.0.
const (
	receiptHeader  = "\xc3\x01\x83\x20\x67\x10\x70\x6a\x5d\x91"
	signedHeader   = "\xc3\x01\x4b\x55\x47\xa7\xfc\xbe\x7f\xe5"
	cutHeader      = "\xc3\x01\x83\x97\x21\xc2\x4d\x24\x80\x7d"
	eventHeader    = "\xc3\x01\x48\x1b\x90\x2e\x75\x08\x28\x63"
	signedKeHeader = "\xc3\x01\x25\x38\x05\x9b\x1e\xf2\x95\x42"
	recordHeader   = "\xc3\x01\x97\x2c\xd6\x0b\x06\x10\xf5\x16"
)

type signature struct {
	keyID string
	value []byte
}

func (r *reader) signature() signature { return signature{r.keyID(), r.fixed(64)} }

func (r *reader) keyID() string {
	found := r.text()
	if len(found) != 16 {
		r.bad()
	}
	for _, char := range found {
		if !(char >= '0' && char <= '9' || char >= 'a' && char <= 'f') {
			r.bad()
		}
	}
	return found
}

type receipt struct {
	previous, recordHash []byte
	partition, seq       int
	sourcePartition      int
	sourceOffset         int
	logID, topic, keyID  string
}

func decodeSigned(value []byte, partition, seq int) ([]byte, signature) {
	r := open(value, signedHeader, partition, seq)
	inner, found := r.content(), r.signature()
	r.end()
	return inner, found
}

func decodeReceipt(value []byte, partition, seq int) receipt {
	r := open(value, receiptHeader, partition, seq)
	var found receipt
	found.previous, found.recordHash = r.fixed(32), r.fixed(32)
	found.partition, found.seq = r.small(), r.natural()
	found.sourcePartition, found.sourceOffset = r.small(), r.natural()
	r.natural() // signed_at_ns
	r.natural() // timeline
	found.logID, found.topic = r.text(), r.text()
	r.text() // kind
	r.text() // namespace
	r.text() // writer
	found.keyID = r.keyID()
	r.optional() // op_hash
	r.array(func() {
		r.fixed(16)  // trace_id
		r.natural()  // occurred_at_us
		r.text()     // outcome
		r.text()     // principal
		r.optional() // context_hash
		r.optional() // prompt_hash
		r.optional() // response_hash
	})
	r.end()
	return found
}

type head struct {
	root      []byte
	partition int
	size      int
	frontier  [][]byte
}

type cut struct {
	previous []byte
	index    int
	logID    string
	heads    []head
}

func decodeCut(value []byte) cut {
	r := open(value, cutHeader, -1, -1)
	var found cut
	found.previous, found.index = r.fixed(32), r.natural()
	r.natural() // at_ns
	found.logID = r.text()
	r.array(func() {
		one := head{root: r.fixed(32), partition: r.small(), size: r.natural()}
		r.array(func() { one.frontier = append(one.frontier, r.fixed(32)) })
		found.heads = append(found.heads, one)
	})
	r.end()
	return found
}

const (
	changeAdd    = 1
	changeRetire = 2
	changeRevoke = 3
	roleReceipt  = 2
	roleLog      = 3
)

type keyEvent struct {
	change, role int
	keyID, logID string
	publicKey    []byte
	lastGood     int
}

func decodeEvent(value []byte) keyEvent {
	r := open(value, eventHeader, -1, -1)
	found := keyEvent{change: r.natural(), role: r.natural(), keyID: r.keyID()}
	found.publicKey = r.content()
	found.lastGood = int(r.long())
	r.natural() // at_ns
	found.logID = r.text()
	r.text() // principal
	r.text() // reason
	r.end()
	if found.change < 1 || found.change > 3 || found.role < 1 || found.role > 3 {
		r.bad()
	}
	if found.lastGood < -1 {
		r.bad()
	}
	return found
}

func decodeSignedEvent(value []byte) ([]byte, []signature) {
	r := open(value, signedKeHeader, -1, -1)
	event := r.content()
	var found []signature
	r.array(func() { found = append(found, r.signature()) })
	r.end()
	return event, found
}

func decodeCutsRecord(value []byte) ([]byte, string) {
	r := open(value, recordHeader, -1, -1)
	leaf, checkpoint := r.content(), r.text()
	r.end()
	return leaf, checkpoint
}
