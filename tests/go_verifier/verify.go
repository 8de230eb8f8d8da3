package main

import (
	"bytes"
	"encoding/base64"
	"strconv"
)

type pinned struct {
	logID string
	roots map[string][]byte
}

// dump has the values of the records of both topics, in order.
type dump struct {
	receipts map[int][][]byte
	cuts     [][]byte
}

// tenure says where a key counts: in leaves, and in receipts by partition.
type tenure struct {
	role              int
	publicKey         []byte
	added, retired    int
	since, until      []int
	lastGood          int
	good              []int
	isOver, isRevoked bool
}

type log struct {
	pinned pinned
	keys   map[string]*tenure
	cuts   []cut
}

// verify returns what is wrong first, or nil. The steps are those of schemas/README.md.
func verify(d dump, p pinned) (found *problem) {
	defer func() {
		switch thrown := recover().(type) {
		case nil:
		case problem:
			found = &thrown
		default:
			panic(thrown) // A fault of ours must not pass for a verdict.
		}
	}()
	l := &log{pinned: p, keys: map[string]*tenure{}}
	l.readLeaves(d.cuts)
	if len(l.cuts) == 0 {
		stop(-1, -1, "no cuts")
	}
	last := l.cuts[len(l.cuts)-1]
	for partition := range d.receipts {
		if partition < 0 || partition >= len(last.heads) {
			stop(partition, 0, "a partition that no cut names")
		}
	}
	for partition := range last.heads {
		l.readReceipts(partition, d.receipts[partition])
	}
	return nil
}

// readLeaves goes through the log of cuts twice: a revocation speaks about the past.
func (l *log) readLeaves(values [][]byte) {
	for _, value := range values {
		leaf, _ := decodeCutsRecord(value)
		if bytes.HasPrefix(leaf, []byte(signedKeHeader)) {
			event := l.keyEvent(leaf)
			if event.change == changeRevoke {
				l.foresee(event)
			}
		}
	}
	leaves, previous := &tree{}, make([]byte, 32)
	var sizes []int
	for index, value := range values {
		leaf, note := decodeCutsRecord(value)
		hashed := leafHash(leaf)
		leaves.add(hashed)
		if bytes.HasPrefix(leaf, []byte(signedKeHeader)) {
			if note != "" {
				stop(-1, -1, "a key event with a checkpoint")
			}
			l.apply(l.keyEvent(leaf), index, sizes)
		} else {
			sizes = l.cut(decodeCut(leaf), note, index, previous, leaves, sizes)
		}
		for _, one := range l.keys {
			if one.isRevoked && index <= one.lastGood {
				one.good = sizes
			}
		}
		previous = hashed
	}
}

func (l *log) keyEvent(leaf []byte) keyEvent {
	raw, signatures := decodeSignedEvent(leaf)
	event := decodeEvent(raw)
	message := signingInput("cachemind/key-event/v1", raw)
	byRoot, byItself := false, event.change == changeRevoke
	for _, one := range signatures {
		if key, known := l.pinned.roots[one.keyID]; known {
			byRoot = byRoot || holds(key, message, one.value)
		}
		if one.keyID == event.keyID {
			byItself = byItself || holds(event.publicKey, message, one.value)
		}
	}
	if !byRoot || !byItself {
		stop(-1, -1, "a key event that root or its key did not sign")
	}
	if event.logID != l.pinned.logID || keyIDOf(event.publicKey) != event.keyID {
		stop(-1, -1, "a key event of another log or key")
	}
	return event
}

func (l *log) foresee(event keyEvent) {
	known := l.keys[event.keyID]
	if known == nil {
		known = &tenure{added: -1}
		l.keys[event.keyID] = known
	}
	if !known.isRevoked || event.lastGood < known.lastGood {
		known.isRevoked, known.lastGood = true, event.lastGood
	}
}

func (l *log) apply(event keyEvent, index int, sizes []int) {
	known := l.keys[event.keyID]
	if known == nil {
		known = &tenure{added: -1}
		l.keys[event.keyID] = known
	}
	switch {
	case event.change == changeAdd && known.added < 0:
		known.role, known.publicKey = event.role, event.publicKey
		known.added, known.since = index, sizes
	case event.change == changeRetire && known.added >= 0 && !known.isOver:
		known.isOver, known.retired = true, index
	}
}

func (l *log) cut(c cut, note string, index int, previous []byte, leaves *tree, before []int) []int {
	if c.index != index || !bytes.Equal(c.previous, previous) || c.logID != l.pinned.logID {
		stop(-1, -1, "cut %d is not in its place", c.index)
	}
	told, readable := parseNote(note)
	if !readable || told.origin != c.logID || told.size != strconv.Itoa(index+1) ||
		told.root != base64.StdEncoding.EncodeToString(leaves.root()) {
		stop(-1, -1, "the checkpoint of cut %d is another tree's", index)
	}
	if !l.signed(told, index) {
		stop(-1, -1, "no key that counts signed cut %d", index)
	}
	sizes := make([]int, len(c.heads))
	for number, one := range c.heads {
		frontier := tree{one.size, one.frontier}
		if one.partition != number || !isFrontier(one) ||
			!bytes.Equal(frontier.root(), one.root) {
			stop(-1, -1, "heads of cut %d", index)
		}
		if len(l.cuts) > 0 && (len(before) != len(c.heads) || one.size < before[number]) {
			stop(-1, -1, "cut %d takes back receipts", index)
		}
		sizes[number] = one.size
	}
	for _, one := range l.keys {
		if one.isOver && one.until == nil {
			one.until = sizes
		}
	}
	l.cuts = append(l.cuts, c)
	return sizes
}

func isFrontier(one head) bool {
	bits := 0
	for n := one.size; n > 0; n >>= 1 {
		bits += n & 1
	}
	return bits == len(one.frontier)
}

func (l *log) signed(told checkpoint, index int) bool {
	for _, one := range l.keys {
		if one.role == roleLog && one.added >= 0 && one.added < index &&
			(!one.isOver || index < one.retired) &&
			(!one.isRevoked || index <= one.lastGood) &&
			told.signedBy(l.pinned.logID, one.publicKey) {
			return true
		}
	}
	return false
}

func at(sizes []int, partition int) int {
	if partition < len(sizes) {
		return sizes[partition]
	}
	return 0
}

func (l *log) readReceipts(partition int, values [][]byte) {
	receipts, previous, source, topic := &tree{}, make([]byte, 32), -1, ""
	next := 0 // the cut whose head is compared next
	compare := func() {
		for next < len(l.cuts) && l.cuts[next].heads[partition].size == receipts.size {
			if !bytes.Equal(l.cuts[next].heads[partition].root, receipts.root()) {
				stop(partition, receipts.size, "another root than cut %d says", next)
			}
			next++
		}
	}
	compare()
	for seq, value := range values {
		raw, signature := decodeSigned(value, partition, seq)
		l.checkSignature(raw, signature, partition, seq)
		r := decodeReceipt(raw, partition, seq)
		switch {
		case r.seq != seq:
			stop(partition, seq, "seq %d in place of %d", r.seq, seq)
		case !bytes.Equal(r.previous, previous):
			stop(partition, seq, "another receipt before it")
		case r.logID != l.pinned.logID || r.partition != partition ||
			r.sourcePartition != partition || r.keyID != signature.keyID:
			stop(partition, seq, "of another log, partition or key")
		case r.sourceOffset <= source || topic != "" && r.topic != topic:
			stop(partition, seq, "source out of order")
		}
		previous, source, topic = leafHash(raw), r.sourceOffset, r.topic
		receipts.add(previous)
		compare()
	}
	if next < len(l.cuts) {
		stop(partition, len(values), "receipts are missing that a cut covers")
	}
}

func (l *log) checkSignature(raw []byte, by signature, partition, seq int) {
	key := l.keys[by.keyID]
	if key == nil || key.added < 0 || key.role != roleReceipt ||
		seq < at(key.since, partition) ||
		key.isOver && key.until != nil && seq >= at(key.until, partition) ||
		key.isRevoked && seq >= at(key.good, partition) {
		stop(partition, seq, "key %s does not count here", by.keyID)
	}
	message := signingInput("cachemind/receipt-hash/v1", hash(raw))
	if !holds(key.publicKey, message, by.value) {
		stop(partition, seq, "the signature does not hold")
	}
}
