# What stops a plan of module service, with its message. Each run changes one value of a
# plan that is fine.

mock_provider "aws" {
  override_during = plan
  source          = "../../tests/mocks"
}

variables {
  name          = "llm"
  image         = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/cachemind@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  metrics_image = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/adot@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  roles = {
    gateway = { name = "gateway", arn = "arn:aws:iam::111122223333:role/gateway" }
    signer  = { name = "signer", arn = "arn:aws:iam::111122223333:role/signer" }
    sink    = { name = "sink", arn = "arn:aws:iam::111122223333:role/sink" }
    topics  = { name = "topics", arn = "arn:aws:iam::111122223333:role/topics" }
  }
  execution_roles = {
    gateway = { name = "gateway", arn = "arn:aws:iam::111122223333:role/gateway" }
    signer  = { name = "signer", arn = "arn:aws:iam::111122223333:role/signer" }
    sink    = { name = "sink", arn = "arn:aws:iam::111122223333:role/sink" }
    topics  = { name = "topics", arn = "arn:aws:iam::111122223333:role/topics" }
  }
  network = { vpc_id = "vpc-1", subnet_ids = ["subnet-1", "subnet-2"], security_groups = { balancer = "sg-1", gateway = "sg-2", signer = "sg-3", sink = "sg-4", topics = "sg-5" } }
  topics  = { prefix = "cachemind", partitions = 4, plan = "{}" }
  keys = {
    signing = { root = "arn:aws:kms:eu-central-1:111122223333:key/1" }
    uris    = { receipt = "r", log = "l", payload = "p" }
    payload = "arn:aws:kms:eu-central-1:111122223333:key/2"
    storage = "arn:aws:kms:eu-central-1:111122223333:key/3"
  }
  kafka = {
    bootstrap_servers = "kafka-1.example:9093"
    mechanism         = "SCRAM-SHA-512"
    account_secrets   = { gateway = "g", collector = "c", signer = "s", sink = "k", topics = "t" }
  }
  buckets = {
    audit     = { name = "audit", arn = "arn:aws:s3:::audit" }
    snapshots = { name = "snapshots", arn = "arn:aws:s3:::snapshots" }
    data_keys = { name = "data-keys", arn = "arn:aws:s3:::data-keys" }
  }
  log_groups = {
    gateway = { name = "g", arn = "arn:aws:logs:eu-central-1:111122223333:log-group:g" }
    signer  = { name = "s", arn = "arn:aws:logs:eu-central-1:111122223333:log-group:s" }
    sink    = { name = "k", arn = "arn:aws:logs:eu-central-1:111122223333:log-group:k" }
    topics  = { name = "t", arn = "arn:aws:logs:eu-central-1:111122223333:log-group:t" }
    metrics = { name = "m", arn = "arn:aws:logs:eu-central-1:111122223333:log-group:m" }
  }
  access_log_bucket = "access"
  lock_days         = 400
  certificate_arn   = "arn:aws:acm:eu-central-1:111122223333:certificate/1"
  hostname          = "llm.example.internal"
  upstream_url      = "https://models.example.internal:8443"
  secrets           = { prompt_secret = "0000000000000000000000000000000000000000000000000000000000000000", keys_json = "{}" }
}

run "image_by_tag" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    image = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/cachemind:latest"
  }
  expect_failures = [var.image]
}

run "audit_off" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { audit_mode = "false" }
  }
  expect_failures = [var.settings]
}

run "kafka_without_tls" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { kafka_security_protocol = "PLAINTEXT" }
  }
  expect_failures = [var.settings]
}

run "kafka_whoever_it_is" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { kafka_enable_ssl_certificate_verification = "false" }
  }
  expect_failures = [var.settings]
}

run "secret_in_the_open" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { pkcs11_pin = "1234" }
  }
  expect_failures = [var.settings]
}

run "guessable_secret" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    secrets = { prompt_secret = "secret", keys_json = "{}" }
  }
  expect_failures = [var.secrets]
}

run "password_in_a_url" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    upstream_url = "https://me:secret@models.example.internal"
  }
  expect_failures = [var.upstream_url]
}

run "keys_without_one_for_metrics" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { auth = "true" }
  }
  expect_failures = [var.secrets]
}

run "with_keys_the_reader_of_metrics_presents_one" {
  command = plan
  module {
    source = "../../modules/service"
  }
  variables {
    settings = { auth = "true" }
    secrets  = { prompt_secret = "0000000000000000000000000000000000000000000000000000000000000000", keys_json = "{}", metrics_key = "cm_0000000000000000" }
  }
  assert {
    condition = alltrue([
      for container in output.containers["gateway"] : strcontains(jsonencode(container), "env:METRICS_KEY") && container.secrets[0].name == "METRICS_KEY" if container.name == "metrics"
    ])
    error_message = "The reader of metrics has no key."
  }
  assert {
    condition = alltrue([
      for container in output.containers["gateway"] : contains([for variable in container.environment : "${variable.name}=${variable.value}"], "CACHEMIND_INSECURE=false") if container.name == "gateway"
    ])
    error_message = "The gateway takes callers without a key."
  }
}
