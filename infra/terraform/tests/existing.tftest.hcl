# A cluster and a network that are there: what they have is used, and not made again. The
# example for them links to it.

mock_provider "aws" {
  override_during = plan
  source          = "../../tests/mocks"
}

override_resource {
  target          = module.network.aws_security_group.role["gateway"]
  override_during = plan
  values          = { id = "sg-gateway" }
}

override_resource {
  target          = module.network.aws_security_group.role["signer"]
  override_during = plan
  values          = { id = "sg-signer" }
}

override_resource {
  target          = module.network.aws_security_group.role["sink"]
  override_during = plan
  values          = { id = "sg-sink" }
}

override_resource {
  target          = module.network.aws_security_group.role["topics"]
  override_during = plan
  values          = { id = "sg-topics" }
}

run "endpoints_that_are_there" {
  command = plan
  variables {
    existing_endpoints = {
      services           = ["kms", "s3", "ecr.api"]
      security_group_ids = ["sg-0123"]
      cidrs              = ["10.9.0.0/24"]
    }
  }

  assert {
    condition     = join(" ", module.network.endpoints) == "ecr.dkr logs secretsmanager"
    error_message = "An endpoint is made that is there already, or one is not made that is not."
  }

  assert {
    condition = alltrue([
      for place in ["sg-0123 to 443", "10.9.0.0/24 to 443"] :
      length([for range in module.network.reachable.out : range if range == place]) == 4
    ])
    error_message = "A task is not let out to endpoints that are there."
  }

  assert {
    condition     = join(" ", output.let_in.endpoints) == "sg-gateway sg-signer sg-sink sg-topics" && join(" ", output.let_in.brokers) == "sg-gateway sg-signer sg-sink sg-topics"
    error_message = "Owners are not told whom to let in."
  }

  assert {
    condition = alltrue(flatten([
      for task, containers in module.service.containers : [
        for container in containers : anytrue([
          for secret in container.secrets : secret.name == "CACHEMIND_KAFKA_SASL_USERNAME" && startswith(secret.valueFrom, "${module.kafka.account_secrets[container.name == "collector" ? "collector" : task]}:")
        ]) if container.name != "metrics"
      ]
    ]))
    error_message = "A process has the account of another one."
  }

  assert {
    condition     = length([for range in module.network.reachable.out : range if range == "10.3.0.0/24 to 9093"]) == 4
    error_message = "A task is not let out to the brokers."
  }
}

run "only_the_gateway_of_s3_is_there" {
  command = plan
  variables {
    existing_endpoints  = { services = ["s3"] }
    accounts            = { gateway = "llm-gateway" }
    account_secrets_key = "arn:aws:kms:eu-central-1:111122223333:key/owners"
  }

  assert {
    condition = alltrue([
      for policy in values(module.service.start_policies) : toset(flatten([
        for statement in policy.Statement : statement.Resource if statement.Action == ["kms:Decrypt"]
      ])) == toset([module.keys.storage, "arn:aws:kms:eu-central-1:111122223333:key/owners"])
    ])
    error_message = "A task cannot be started, as its password cannot be opened."
  }

  assert {
    condition     = length(output.let_in.endpoints) == 0 && length(module.network.endpoints) == 5
    error_message = "An owner is asked for something that is not needed."
  }

  assert {
    condition     = contains([for acl in module.topics.acls : acl.principal], "User:llm-gateway") && !contains([for acl in module.topics.acls : acl.principal], "User:gateway")
    error_message = "Rules are for another user than the cluster's."
  }
}
