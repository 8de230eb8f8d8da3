name               = "llm"
region             = "eu-central-1"
availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
bucket_prefix      = "example"
administrators     = ["arn:aws:iam::111122223333:role/keys"]
auditors           = ["arn:aws:iam::111122223333:role/audit"]
alarm_topic_arns   = ["arn:aws:sns:eu-central-1:111122223333:alarms"]
certificate_arn    = "arn:aws:acm:eu-central-1:111122223333:certificate/1"
hostname           = "llm.example.internal"
client_cidrs       = ["10.0.0.0/16"]
upstream_url       = "https://models.example.internal:8443"
upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
image              = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/cachemind@sha256:0000000000000000000000000000000000000000000000000000000000000000"
metrics_image      = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/adot@sha256:0000000000000000000000000000000000000000000000000000000000000000"
lock_days          = 400

# Not secrets: a test must say something.
secrets = {
  prompt_secret = "0000000000000000000000000000000000000000000000000000000000000000"
  keys_json     = "{}"
}

passwords = {
  collector = "00000000000000000000000000000000"
  gateway   = "00000000000000000000000000000000"
  signer    = "00000000000000000000000000000000"
  sink      = "00000000000000000000000000000000"
  topics    = "00000000000000000000000000000000"
  auditor   = "00000000000000000000000000000000"
  ceremony  = "00000000000000000000000000000000"
  app       = "00000000000000000000000000000000"
  other     = "00000000000000000000000000000000"
}
