# What a cluster that is made here must be. The examples that make one link to it.

mock_provider "aws" {
  override_during = plan
  source          = "../../tests/mocks"
}

run "brokers" {
  command = plan
  variables {
    key_ceremony = ["arn:aws:iam::111122223333:role/officer"]
  }

  assert {
    condition     = toset(keys(module.kafka.account_secrets)) == toset(["gateway", "collector", "signer", "sink", "topics", "auditor", "ceremony"])
    error_message = "Somebody who works with the log has no account, or an account nobody."
  }

  assert {
    condition     = length(module.network.reachable.kafka) == 0
    error_message = "Brokers let somebody in who was not named."
  }

  assert {
    condition     = module.kafka.protections.public_access == "DISABLED" && !module.kafka.protections.unauthenticated
    error_message = "Brokers can be reached from outside, or without a password."
  }

  assert {
    condition     = module.kafka.protections.client_broker == "TLS" && module.kafka.protections.in_cluster
    error_message = "Brokers speak without TLS."
  }

  assert {
    condition     = module.kafka.protections.disk_key == module.keys.storage && alltrue([for key in module.kafka.protections.secrets_keys : key == module.keys.storage])
    error_message = "Brokers' disks, or passwords, are not encrypted under our key."
  }

  assert {
    condition = length(setsubtract([
      "allow.everyone.if.no.acl.found=false",
      "auto.create.topics.enable=false",
      "default.replication.factor=3",
      "min.insync.replicas=2",
      "unclean.leader.election.enable=false",
    ], split("\n", module.kafka.protections.server_properties))) == 0
    error_message = "Brokers let somebody in without an ACL, make topics by themselves, or can lose an acknowledged record."
  }

  assert {
    condition     = module.kafka.protections.logs
    error_message = "Brokers keep no logs."
  }

  assert {
    condition = length(setsubtract(
      ["broker-1-disk", "broker-2-disk", "broker-3-disk"],
      [for alarm in module.observability.alarms : trimprefix(alarm, "llm-")],
    )) == 0
    error_message = "An alarm is missing."
  }
}
