package main

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"
)

// problem is why a log does not verify; it ends what is being verified.
type problem struct {
	Reason    string `json:"reason"`
	Partition int    `json:"partition"`
	Seq       int    `json:"seq"`
}

func (p problem) Error() string { return p.Reason }

// stop ends a verification; partition and seq are -1 for what is no receipt.
func stop(partition, seq int, format string, more ...any) {
	panic(problem{fmt.Sprintf(format, more...), partition, seq})
}

// reader takes the one encoding of a value and no other.
type reader struct {
	left           []byte
	partition, seq int
}

func open(value []byte, header string, partition, seq int) *reader {
	if !bytes.HasPrefix(value, []byte(header)) {
		stop(partition, seq, "another header")
	}
	return &reader{value[len(header):], partition, seq}
}

func (r *reader) bad() { stop(r.partition, r.seq, "undecodable") }

func (r *reader) end() {
	if len(r.left) != 0 {
		r.bad()
	}
}

func (r *reader) fixed(size int) []byte {
	if size < 0 || size > len(r.left) {
		r.bad()
	}
	taken := r.left[:size]
	r.left = r.left[size:]
	return taken
}

// long reads a zig-zag number in its shortest form.
func (r *reader) long() int64 {
	var raw uint64
	for shift := 0; ; shift += 7 {
		next := r.fixed(1)[0]
		if shift == 63 && next > 1 {
			r.bad()
		}
		raw |= uint64(next&0x7f) << shift
		if next < 0x80 {
			if next == 0 && shift > 0 {
				r.bad()
			}
			return int64(raw>>1) ^ -int64(raw&1)
		}
	}
}

func (r *reader) natural() int {
	found := r.long()
	if found < 0 {
		r.bad()
	}
	return int(found)
}

func (r *reader) small() int {
	found := r.natural()
	if found > math.MaxInt32 {
		r.bad()
	}
	return found
}

func (r *reader) content() []byte { return r.fixed(r.natural()) }

func (r *reader) text() string {
	found := r.content()
	if !utf8.Valid(found) {
		r.bad()
	}
	return string(found)
}

// optional reads ["null", fixed 32].
func (r *reader) optional() []byte {
	switch r.natural() {
	case 0:
		return nil
	case 1:
		return r.fixed(32)
	}
	r.bad()
	return nil
}

// array calls item for each item of an array in one block.
func (r *reader) array(item func()) {
	count := r.natural()
	if count == 0 {
		return
	}
	for ; count > 0; count-- {
		item()
	}
	if r.natural() != 0 {
		r.bad()
	}
}
