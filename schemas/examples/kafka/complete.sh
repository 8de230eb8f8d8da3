#!/bin/sh
# Asks the cache over Kafka, with kcat alone: complete.sh BROKERS NAMESPACE QUESTION [ROLE]
# Prints the answer's JSON. With a ROLE it asks by the namespace's grant of it. The bytes
# are those of schemas/README.md, by hand.
set -eu
brokers=$1 namespace=$2 question=$3
requests=cachemind.requests${4:+.$2.$4} replies=cachemind.replies${4:+.$2.$4}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

byte() { printf "\\$(printf %03o "$1")"; }

# A number as Avro writes it: zigzag, seven bits a byte.
number() {
    rest=$(($1 * 2))
    while [ "$rest" -ge 128 ]; do
        byte $((rest % 128 + 128))
        rest=$((rest / 128))
    done
    byte "$rest"
}

text() {
    number "$(printf %s "$1" | wc -c)"
    printf %s "$1"
}

# 16 bytes of chance: the request's id. Sent again with the same id, it is answered so
# again and done once.
head -c 16 /dev/urandom >"$work/id"
correlation=$(od -An -tx1 "$work/id" | tr -d ' \n')
quoted=$(printf %s "$question" | sed 's/["\\]/\\&/g')
body="{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"$quoted\"}]}"
{
    printf '\303\001\364\211\056\276\200\157\357\372' # single object, commands 0.3.0
    cat "$work/id"
    text "$namespace"
    number 2 # Complete; 1 would be Lookup
    text "$body"
    text "" # cache_control
    text "" # mode
    number 0 # no threshold
    number 0 # no ttl_s
} >"$work/command"

kcat -P -q -b "$brokers" -t "$requests" -X partitioner=murmur2_random \
    -k "$namespace" -H "reply-to=$replies" -H "correlation-id=$correlation" \
    "$work/command"

tries=0
until grep -q . "$work/reply" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 60 ] || {
        echo "no answer came; cachemind dlq list may say why" >&2
        exit 1
    }
    sleep 0.5
    kcat -C -q -b "$brokers" -t "$replies" -X isolation.level=read_committed \
        -o beginning -e -f '%k %s--end--' | tr '\000\n' '  ' |
        LC_ALL=C sed 's/--end--/\n/g' | LC_ALL=C grep -a "^$correlation " >"$work/reply" || true
done
# A problem has no JSON: its code and what it says are text between other bytes.
LC_ALL=C grep -a -o '{ *"[a-z]*":.*}' "$work/reply" || {
    LC_ALL=C tr -cs ' -~' ' ' <"$work/reply" >&2
    exit 1
}
