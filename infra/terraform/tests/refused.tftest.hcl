# What stops a plan, with its message. Each run changes one value of a plan that is fine.

mock_provider "aws" {
  override_during = plan
  source          = "../../tests/mocks"
}

run "one_copy" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    replication_factor = 1
  }
  expect_failures = [var.replication_factor]
}

run "less_than_a_day" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    retention_days = { wal = 0.5 }
  }
  expect_failures = [var.retention_days]
}

run "time_for_a_topic_that_keeps_the_newest" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    retention_days = { snapshots = 30 }
  }
  expect_failures = [var.retention_days]
}

run "half_a_partition" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    partitions = 1.5
  }
  expect_failures = [var.partitions]
}

run "one_copy_by_default" {
  command = plan
  module {
    source = "../../modules/kafka"
  }
  variables {
    name               = "llm"
    subnet_ids         = ["subnet-1", "subnet-2", "subnet-3"]
    security_group_id  = "sg-1"
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    accounts           = ["gateway"]
    passwords          = { gateway = "00000000000000000000000000000000" }
    replication_factor = 1
  }
  expect_failures = [var.replication_factor]
}

run "two_brokers" {
  command = plan
  module {
    source = "../../modules/kafka"
  }
  variables {
    name               = "llm"
    subnet_ids         = ["subnet-1", "subnet-2", "subnet-3"]
    security_group_id  = "sg-1"
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    accounts           = ["gateway"]
    passwords          = { gateway = "00000000000000000000000000000000" }
    brokers            = 2
  }
  expect_failures = [var.brokers]
}

run "short_password" {
  command = plan
  module {
    source = "../../modules/kafka"
  }
  variables {
    name               = "llm"
    subnet_ids         = ["subnet-1", "subnet-2", "subnet-3"]
    security_group_id  = "sg-1"
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    accounts           = ["gateway"]
    passwords          = { gateway = "correct-horse" }
  }
  expect_failures = [var.passwords]
}

run "mechanism_that_is_not_spoken" {
  command = plan
  module {
    source = "../../modules/kafka_existing"
  }
  variables {
    bootstrap_servers = "kafka-1.example:9093"
    account_secrets = {
      collector = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:collector"
      gateway   = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:gateway"
      signer    = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:signer"
      sink      = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:sink"
      topics    = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:topics"
    }
    mechanism = "OAUTHBEARER"
  }
  expect_failures = [var.mechanism]
}

run "alias_as_a_key" {
  command = plan
  module {
    source = "../../modules/kafka_existing"
  }
  variables {
    bootstrap_servers = "kafka-1.example:9093"
    account_secrets = {
      collector = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:collector"
      gateway   = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:gateway"
      signer    = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:signer"
      sink      = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:sink"
      topics    = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:topics"
    }
    account_secrets_key = "arn:aws:kms:eu-central-1:111122223333:alias/kafka"
  }
  expect_failures = [var.account_secrets_key]
}

run "whole_internet_as_clients" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    kafka              = { port = 9096, cidrs = [] }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    client_cidrs       = ["0.0.0.0/0"]
  }
  expect_failures = [var.client_cidrs]
}

run "public_clients" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    kafka              = { port = 9096, cidrs = [] }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    client_cidrs       = ["8.8.8.0/24"]
  }
  expect_failures = [var.client_cidrs]
}

run "whole_internet_as_upstream" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    kafka              = { port = 9096, cidrs = [] }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    upstream           = { cidrs = ["0.0.0.0/0"], port = 443 }
  }
  expect_failures = [var.upstream]
}

run "public_network" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    kafka              = { port = 9096, cidrs = [] }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    cidr               = "8.0.0.0/20"
  }
  expect_failures = [var.cidr]
}

run "public_clients_of_kafka" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    kafka              = { port = 9096, cidrs = [], client_cidrs = ["8.8.8.0/24"] }
  }
  expect_failures = [var.kafka]
}

run "endpoints_of_a_network_that_is_made" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    kafka              = { port = 9096, cidrs = [] }
    existing_endpoints = { services = ["kms"], cidrs = ["10.9.0.0/24"] }
  }
  expect_failures = [var.existing_endpoints]
}

run "endpoint_that_nobody_calls" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    kafka              = { port = 9096, cidrs = [] }
    existing           = { vpc_id = "vpc-1", subnet_ids = ["subnet-1", "subnet-2"], route_table_ids = ["rtb-1"] }
    existing_endpoints = { services = ["sqs"], cidrs = ["10.9.0.0/24"] }
  }
  expect_failures = [var.existing_endpoints]
}

run "endpoints_nobody_knows_where" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    kafka              = { port = 9096, cidrs = [] }
    existing           = { vpc_id = "vpc-1", subnet_ids = ["subnet-1", "subnet-2"], route_table_ids = ["rtb-1"] }
    existing_endpoints = { services = ["kms"] }
  }
  expect_failures = [var.existing_endpoints]
}

run "endpoints_anywhere" {
  command = plan
  module {
    source = "../../modules/network"
  }
  variables {
    name               = "llm"
    availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
    client_cidrs       = ["10.0.0.0/16"]
    upstream           = { cidrs = ["10.1.2.0/24"], port = 8443 }
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    kafka              = { port = 9096, cidrs = [] }
    existing           = { vpc_id = "vpc-1", subnet_ids = ["subnet-1", "subnet-2"], route_table_ids = ["rtb-1"] }
    existing_endpoints = { services = ["kms"], cidrs = ["0.0.0.0/0"] }
  }
  expect_failures = [var.existing_endpoints]
}

run "account_without_a_password" {
  command = plan
  module {
    source = "../../modules/kafka"
  }
  variables {
    name               = "llm"
    subnet_ids         = ["subnet-1", "subnet-2", "subnet-3"]
    security_group_id  = "sg-1"
    storage_key_arn    = "arn:aws:kms:eu-central-1:111122223333:key/1"
    log_retention_days = 90
    accounts           = ["gateway", "signer"]
    passwords          = { gateway = "00000000000000000000000000000000" }
  }
  expect_failures = [var.passwords]
}

run "account_of_no_role" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    accounts = { warmer = "warmer" }
  }
  expect_failures = [var.accounts]
}

run "everybody_as_an_account" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    accounts = { gateway = "*" }
  }
  expect_failures = [var.accounts]
}

run "prefix_that_is_another_ones_grant" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    prefix = "cachemind.requests.shop"
  }
  expect_failures = [var.prefix]
}

run "grant_of_no_role" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "shop", role = "root", user = "app" }]
  }
  expect_failures = [var.grants]
}

run "grant_in_no_namespace" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "Shop", role = "cache-reader", user = "app" }]
  }
  expect_failures = [var.grants]
}

run "grant_in_our_own_namespace" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "cachemind.access", role = "cache-reader", user = "app" }]
  }
  expect_failures = [var.grants]
}

run "grant_with_a_long_name" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    prefix = "pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp"
    grants = [{ namespace = "ssssssssssssssssssssssssssssssssssssssssssssssssss", role = "cache-reader", user = "app" }]
  }
  expect_failures = [var.grants]
}

run "grants_that_kafka_cannot_tell_apart" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "a.b", role = "cache-reader", user = "app" }, { namespace = "a_b", role = "cache-reader", user = "app" }]
  }
  expect_failures = [var.grants]
}

run "grant_to_everybody" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "shop", role = "cache-reader", user = "*" }]
  }
  expect_failures = [var.grants]
}

run "grant_to_an_account_of_ours" {
  command = plan
  module {
    source = "../../modules/topics"
  }
  variables {
    grants = [{ namespace = "shop", role = "cache-admin", user = "sink" }]
  }
  expect_failures = [var.grants]
}

run "no_lock" {
  command = plan
  module {
    source = "../../modules/audit"
  }
  variables {
    name              = "llm"
    bucket            = "audit"
    access_log_bucket = "access"
    roles             = {}
    lock_days         = 0
  }
  expect_failures = [var.lock_days]
}

run "no_way_back" {
  command = plan
  module {
    source = "../../modules/snapshots"
  }
  variables {
    name              = "llm"
    bucket            = "snapshots"
    access_log_bucket = "access"
    storage_key_arn   = "arn:aws:kms:eu-central-1:111122223333:key/1"
    undelete_days     = 0
  }
  expect_failures = [var.undelete_days]
}

run "no_auditor" {
  command = plan
  module {
    source = "../../modules/identities"
  }
  variables {
    name     = "llm"
    auditors = []
  }
  expect_failures = [var.auditors]
}

run "everybody_administers" {
  command = plan
  module {
    source = "../../modules/keys"
  }
  variables {
    name              = "llm"
    access_log_bucket = "access"
    data_keys_bucket  = "data-keys"
    execution_roles   = {}
    roles = {
      gateway = { name = "gateway", arn = "arn:aws:iam::111122223333:role/gateway" }
      signer  = { name = "signer", arn = "arn:aws:iam::111122223333:role/signer" }
      auditor = { name = "auditor", arn = "arn:aws:iam::111122223333:role/auditor" }
    }
    administrators = ["*"]
  }
  expect_failures = [var.administrators]
}

run "signer_administers" {
  command = plan
  module {
    source = "../../modules/keys"
  }
  variables {
    name              = "llm"
    access_log_bucket = "access"
    data_keys_bucket  = "data-keys"
    execution_roles   = {}
    roles = {
      gateway = { name = "gateway", arn = "arn:aws:iam::111122223333:role/gateway" }
      signer  = { name = "signer", arn = "arn:aws:iam::111122223333:role/signer" }
      auditor = { name = "auditor", arn = "arn:aws:iam::111122223333:role/auditor" }
    }
    administrators = ["arn:aws:iam::111122223333:role/signer"]
  }
  expect_failures = [var.administrators]
}

run "gone_tomorrow" {
  command = plan
  module {
    source = "../../modules/keys"
  }
  variables {
    name              = "llm"
    access_log_bucket = "access"
    data_keys_bucket  = "data-keys"
    administrators    = ["arn:aws:iam::111122223333:role/keys"]
    execution_roles   = {}
    roles = {
      gateway = { name = "gateway", arn = "arn:aws:iam::111122223333:role/gateway" }
      signer  = { name = "signer", arn = "arn:aws:iam::111122223333:role/signer" }
      auditor = { name = "auditor", arn = "arn:aws:iam::111122223333:role/auditor" }
    }
    deletion_window_days = 1
  }
  expect_failures = [var.deletion_window_days]
}

run "nobody_hears" {
  command = plan
  module {
    source = "../../modules/observability"
  }
  variables {
    name             = "llm"
    storage_key_arn  = "arn:aws:kms:eu-central-1:111122223333:key/1"
    balancer         = { suffix = "app/c/1", group_suffix = "targetgroup/c/1" }
    ecs_cluster      = "llm"
    alarm_topic_arns = []
  }
  expect_failures = [var.alarm_topic_arns]
}

run "logs_for_a_day" {
  command = plan
  module {
    source = "../../modules/observability"
  }
  variables {
    name             = "llm"
    storage_key_arn  = "arn:aws:kms:eu-central-1:111122223333:key/1"
    alarm_topic_arns = ["arn:aws:sns:eu-central-1:111122223333:alarms"]
    balancer         = { suffix = "app/c/1", group_suffix = "targetgroup/c/1" }
    ecs_cluster      = "llm"
    retention_days   = 1
  }
  expect_failures = [var.retention_days]
}
