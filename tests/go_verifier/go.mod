module cachemind.example/verifier

go 1.21
