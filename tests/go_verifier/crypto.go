package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// What precedes the point of a P-256 key in DER (SPKI).
var spki, _ = hex.DecodeString("3059301306072a8648ce3d020106082a8648ce3d030107034200")

func hash(parts ...[]byte) []byte {
	found := sha256.Sum256(bytes.Join(parts, nil))
	return found[:]
}

func leafHash(leaf []byte) []byte { return hash([]byte{0}, leaf) }

func keyIDOf(publicKey []byte) string { return hex.EncodeToString(hash(publicKey)[:8]) }

func p256(publicKey []byte) *ecdsa.PublicKey {
	point, found := bytes.CutPrefix(publicKey, spki)
	if !found || len(point) != 65 || point[0] != 4 {
		return nil
	}
	x, y := new(big.Int).SetBytes(point[1:33]), new(big.Int).SetBytes(point[33:])
	if !elliptic.P256().IsOnCurve(x, y) {
		return nil
	}
	return &ecdsa.PublicKey{Curve: elliptic.P256(), X: x, Y: y}
}

// holds says whether raw r || s, with a low s, signs the message.
func holds(publicKey, message, raw []byte) bool {
	key := p256(publicKey)
	r, s := new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])
	half := new(big.Int).Rsh(elliptic.P256().Params().N, 1)
	return key != nil && s.Cmp(half) <= 0 && ecdsa.Verify(key, hash(message), r, s)
}

func signingInput(kind string, body []byte) []byte {
	head := fmt.Sprintf("CMv1 %d %s %d ", len(kind), kind, len(body))
	return append([]byte(head), body...)
}

// tree grows leaf by leaf (RFC 9162 section 2.1).
type tree struct {
	size  int
	nodes [][]byte
}

func (t *tree) add(leaf []byte) {
	for n := t.size; n&1 == 1; n >>= 1 {
		last := len(t.nodes) - 1
		leaf = hash([]byte{1}, t.nodes[last], leaf)
		t.nodes = t.nodes[:last]
	}
	t.nodes = append(t.nodes, leaf)
	t.size++
}

func (t *tree) root() []byte {
	if t.size == 0 {
		return hash()
	}
	at := len(t.nodes) - 1
	root := t.nodes[at]
	for at--; at >= 0; at-- {
		root = hash([]byte{1}, t.nodes[at], root)
	}
	return root
}

// checkpoint is a signed note over a tree of leaves.
type checkpoint struct {
	text, origin, size, root string
	lines                    []string
}

func parseNote(note string) (checkpoint, bool) {
	at := strings.LastIndex(note, "\n\n")
	if at < 0 || !strings.HasSuffix(note, "\n") {
		return checkpoint{}, false
	}
	text, lines := note[:at+1], strings.Split(strings.TrimSuffix(note[at+2:], "\n"), "\n")
	fields := strings.Split(text, "\n")
	if len(fields) < 4 {
		return checkpoint{}, false
	}
	return checkpoint{text, fields[0], fields[1], fields[2], lines}, true
}

// signedBy says whether the key signed under name; a wrong line of it spoils all.
func (c checkpoint) signedBy(name string, publicKey []byte) bool {
	signed := false
	for _, line := range c.lines {
		rest, found := strings.CutPrefix(line, "— "+name+" ")
		if !found {
			continue
		}
		value, err := base64.StdEncoding.Strict().DecodeString(rest)
		if err != nil || len(value) < 5 {
			return false
		}
		if !bytes.Equal(value[:4], hash(publicKey)[:4]) {
			continue
		}
		key := p256(publicKey)
		if key == nil || !ecdsa.VerifyASN1(key, hash([]byte(c.text)), value[4:]) {
			return false
		}
		signed = true
	}
	return signed
}
