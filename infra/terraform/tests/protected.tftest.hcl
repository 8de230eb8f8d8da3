# What each example must protect. One file for all of them: the examples link to it.

mock_provider "aws" {
  override_during = plan
  source          = "../../tests/mocks"
}

override_resource {
  target          = module.identities.aws_iam_role.task["gateway"]
  override_during = plan
  values          = { arn = "arn:aws:iam::111122223333:role/gateway" }
}

override_resource {
  target          = module.identities.aws_iam_role.task["signer"]
  override_during = plan
  values          = { arn = "arn:aws:iam::111122223333:role/signer" }
}

override_resource {
  target          = module.identities.aws_iam_role.task["sink"]
  override_during = plan
  values          = { arn = "arn:aws:iam::111122223333:role/sink" }
}

override_resource {
  target          = module.identities.aws_iam_role.task["topics"]
  override_during = plan
  values          = { arn = "arn:aws:iam::111122223333:role/topics" }
}

override_resource {
  target          = module.identities.aws_iam_role.person["auditor"]
  override_during = plan
  values          = { arn = "arn:aws:iam::111122223333:role/auditor" }
}

override_resource {
  target          = module.keys.aws_kms_key.signing["root"]
  override_during = plan
  values          = { arn = "arn:aws:kms:eu-central-1:111122223333:key/root" }
}

override_resource {
  target          = module.keys.aws_kms_key.signing["receipt-1"]
  override_during = plan
  values          = { arn = "arn:aws:kms:eu-central-1:111122223333:key/receipt-1" }
}

override_resource {
  target          = module.keys.aws_kms_key.signing["log-1"]
  override_during = plan
  values          = { arn = "arn:aws:kms:eu-central-1:111122223333:key/log-1" }
}

override_resource {
  target          = module.keys.aws_kms_key.storage
  override_during = plan
  values          = { arn = "arn:aws:kms:eu-central-1:111122223333:key/storage" }
}

override_resource {
  target          = module.keys.aws_kms_key.payload
  override_during = plan
  values          = { arn = "arn:aws:kms:eu-central-1:111122223333:key/payload" }
}

override_resource {
  target          = module.audit.aws_s3_bucket.audit
  override_during = plan
  values          = { arn = "arn:aws:s3:::audit" }
}

override_resource {
  target          = module.audit.aws_s3_bucket.access
  override_during = plan
  values          = { arn = "arn:aws:s3:::access", id = "access-log" }
}

override_resource {
  target          = module.snapshots.aws_s3_bucket.snapshots
  override_during = plan
  values          = { arn = "arn:aws:s3:::snapshots" }
}

override_resource {
  target          = module.keys.aws_s3_bucket.data_keys
  override_during = plan
  values          = { arn = "arn:aws:s3:::data-keys" }
}

override_resource {
  target          = module.network.aws_security_group.role["topics"]
  override_during = plan
  values          = { id = "sg-topics" }
}

run "protected" {
  command = plan

  # ---- no public access
  assert {
    condition = alltrue([
      for block in [
        module.audit.protections.public.audit, module.audit.protections.public.access,
        module.snapshots.protections.public, module.keys.protections.data_keys_public,
      ] : block.block_public_acls && block.block_public_policy && block.ignore_public_acls && block.restrict_public_buckets
    ])
    error_message = "A bucket can be made public."
  }

  assert {
    condition     = !module.network.public_addresses && !module.service.protections.public_addresses && module.service.protections.internal
    error_message = "Something has a public address."
  }

  assert {
    condition     = alltrue([for range in module.network.reachable.in : can(regex("^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.).* to 443$", range))])
    error_message = "The gateway can be reached from outside, or by another port than 443."
  }

  assert {
    condition     = length([for range in module.network.reachable.out : range if strcontains(range, "0.0.0.0/0")]) == 0
    error_message = "Something may go out to the whole internet."
  }

  assert {
    condition     = !module.service.protections.remote_shell
    error_message = "A shell can be opened in a container."
  }

  # ---- at rest
  assert {
    condition     = module.audit.protections.encryption == "AES256" && module.audit.protections.access_sse == "AES256"
    error_message = "The audit bucket, or that of access logs, is not encrypted with S3's own keys."
  }

  assert {
    condition = alltrue([
      for rule in [module.snapshots.protections.encryption, module.keys.protections.data_keys_sse] :
      rule.sse_algorithm == "aws:kms" && rule.kms_master_key_id == module.keys.storage
    ])
    error_message = "Snapshots or data keys are not encrypted under our key."
  }

  assert {
    condition     = alltrue([for group in module.observability.protections : group.key == module.keys.storage && group.days >= 30])
    error_message = "A log group is not encrypted under our key, or forgets within a month."
  }

  assert {
    condition     = alltrue([for key in module.service.protections.secrets_keys : key == module.keys.storage])
    error_message = "A secret is not encrypted under our key."
  }

  # Before 1.4.0 the disk of a task, where the stores are, was not encrypted.
  assert {
    condition     = alltrue([for platform in module.service.protections.platforms : platform == "1.4.0"])
    error_message = "The disk of a task is not encrypted."
  }

  assert {
    condition     = module.keys.protections.data_keys_kept == "Disabled" && !module.keys.protections.data_keys_expire
    error_message = "Destroyed data keys are kept, or those in use are not."
  }

  assert {
    condition     = module.keys.protections.rotation.payload && module.keys.protections.rotation.storage
    error_message = "A key that KMS can rotate is not rotated."
  }

  # ---- in transit
  assert {
    condition     = module.service.protections.listener.protocol == "HTTPS" && startswith(module.service.protections.listener.policy, "ELBSecurityPolicy-TLS13")
    error_message = "The load balancer speaks something else than TLS 1.2 and 1.3."
  }

  assert {
    condition = alltrue([
      for policy in [
        module.audit.protections.policy, module.audit.protections.access_policy,
        module.snapshots.protections.policy, module.keys.protections.data_keys_policy,
        ] : anytrue([
          for statement in policy.Statement :
          statement.Effect == "Deny" && statement.Principal == "*" && statement.Action == "s3:*" && try(statement.Condition.Bool["aws:SecureTransport"], "") == "false" && length(statement.Resource) == 2
      ])
    ])
    error_message = "A bucket answers without TLS."
  }

  assert {
    condition = alltrue(flatten([
      for task, containers in module.service.containers : [
        for container in containers : anytrue([
          for variable in container.environment : variable.name == "CACHEMIND_KAFKA_SECURITY_PROTOCOL" && variable.value == "SASL_SSL"
        ]) if container.name != "metrics"
      ]
    ]))
    error_message = "A process reaches Kafka without TLS or without saying who it is."
  }

  # ---- containers
  assert {
    condition = alltrue(flatten([
      for task, containers in module.service.containers : [
        for container in containers :
        container.readonlyRootFilesystem && container.user == "10001:10001" && container.linuxParameters.capabilities.drop == ["ALL"] && strcontains(container.image, "@sha256:")
      ]
    ]))
    error_message = "A container may write to its root, is root, has a capability, or is not named by its digest."
  }

  assert {
    condition = alltrue(flatten([
      for task, containers in module.service.containers : [
        for container in containers : [
          for variable in container.environment : !can(regex("PASSWORD|SECRET$|PIN$|PASSPHRASE", variable.name))
        ]
      ]
    ]))
    error_message = "A secret is in a plain variable."
  }

  # ---- what runs beside what
  assert {
    condition     = toset([for container in module.service.containers["gateway"] : container.name]) == toset(["gateway", "materializer", "requests", "receipts", "collector", "snapshots", "metrics"])
    error_message = "A gateway is without a process that it needs beside it."
  }

  assert {
    condition = alltrue([
      for container in module.service.containers["gateway"] : anytrue([
        for mount in container.mountPoints : mount.sourceVolume == "home" && mount.containerPath == "/var/lib/cachemind"
      ]) if container.name != "metrics"
    ]) && contains(module.service.protections.volumes["gateway"], "home")
    error_message = "The processes of a gateway's task do not share the stores."
  }

  assert {
    condition = alltrue([for task in ["signer", "sink"] : anytrue([
      for container in module.service.containers[task] :
      !container.essential && length(container.secrets) == 0 && container.command == ["python", "/opt/cachemind/tell_metrics.py", "llm"] && container.environment[0].value == "/var/lib/cachemind/metrics"
      && container.mountPoints[0].containerPath == "/var/lib/cachemind"
    ])])
    error_message = "Nobody tells what a signer or a sink counts, so that alarms stand on nothing."
  }

  assert {
    condition = alltrue([
      for container in module.service.containers["gateway"] : !container.essential && container.restartPolicy.enabled if container.name == "collector"
    ])
    error_message = "A collector that ends takes the gateway with it, or is not started again."
  }

  assert {
    condition     = one([for container in module.service.containers["gateway"] : container if container.name == "gateway"]).healthCheck.retries > 0
    error_message = "A gateway that answers no more is not replaced."
  }

  assert {
    condition     = toset(keys(module.service.policies)) == toset(["gateway", "signer", "sink", "auditor"]) && toset(keys(module.service.start_policies)) == toset(["gateway", "signer", "sink", "topics"])
    error_message = "There is a role more, or one less, than there should be."
  }

  # ---- the lock
  assert {
    condition     = module.audit.protections.locked && module.audit.protections.lock.mode == "COMPLIANCE" && module.audit.protections.lock.days == var.lock_days
    error_message = "The audit bucket does not lock in compliance mode for the chosen days."
  }

  assert {
    condition     = module.audit.protections.versioning == "Enabled" && !module.audit.protections.expires
    error_message = "The audit bucket keeps no versions, or forgets some."
  }

  assert {
    condition     = join(" ", [for move in module.audit.protections.cold : "${move.class} ${move.days}"]) == "GLACIER_IR 90"
    error_message = "Receipts do not move to cold storage that is read at once."
  }

  assert {
    condition     = alltrue([for bucket in [module.audit.protections.logged_to, module.snapshots.protections.logged_to, module.keys.protections.data_keys_logged] : bucket == "access-log"])
    error_message = "Who read a bucket is not written down."
  }

  assert {
    condition = anytrue([
      for variable in module.service.containers["sink"][0].environment :
      variable.name == "CACHEMIND_SINK_RETENTION_DAYS" && variable.value == tostring(var.lock_days)
    ])
    error_message = "The sink locks for another time than the bucket."
  }

  # ---- topics
  assert {
    condition     = module.topics.topics["wal"].settings["cleanup.policy"] == "delete"
    error_message = "The WAL is compacted."
  }

  assert {
    condition = alltrue([
      for topic in module.topics.topics :
      topic.replication_factor >= 3 && topic.settings["min.insync.replicas"] == "2" && topic.settings["unclean.leader.election.enable"] == "false"
    ])
    error_message = "A topic can lose an acknowledged record."
  }

  assert {
    condition     = module.topics.topics["wal"].partitions == module.topics.topics["audit"].partitions
    error_message = "The WAL and its receipts have different numbers of partitions."
  }

  assert {
    condition     = length([for acl in module.topics.acls : acl if length(setintersection(acl.operations, ["all", "cluster_action", "delete"])) > 0]) == 0
    error_message = "A role may delete topics."
  }

  assert {
    condition = toset([
      for acl in module.topics.acls : acl.principal if length(setintersection(acl.operations, ["alter", "alter_configs", "create"])) > 0
    ]) == toset(["User:topics"])
    error_message = "Somebody but the task for it may make or change topics."
  }

  assert {
    condition     = length([for acl in module.topics.acls : acl if acl.principal == "User:ceremony"]) == 0 && contains(jsondecode(module.topics.plan).principals, "User:ceremony")
    error_message = "The ceremony's account may write to the WAL when there is none, or keeps what it could."
  }

  assert {
    condition = toset([
      for acl in module.topics.acls : acl.principal
      if contains(acl.operations, "write") && contains(["cachemind.audit", "cachemind.audit.cuts"], acl.name)
    ]) == toset(["User:signer"])
    error_message = "Somebody but the signer may write receipts."
  }

  assert {
    condition     = length([for name in keys(module.topics.topics) : name if startswith(name, "requests.") || startswith(name, "replies.")]) == 0 && length(jsondecode(module.topics.plan).only) == 0
    error_message = "Somebody has a grant who was not named, or rules are taken that were made by hand."
  }

  # ---- who may sign
  assert {
    condition = alltrue([
      for use, key in module.keys.protections.signing :
      join(" ", flatten([for statement in key.policy.Statement : statement.Principal.AWS if contains(statement.Action, "kms:Sign")]))
      == (use == "root" ? "" : "arn:aws:iam::111122223333:role/signer")
    ])
    error_message = "A key lets somebody sign who is not the signer."
  }

  assert {
    condition     = alltrue([for use, key in module.keys.protections.signing : key.spec == "ECC_NIST_P256" && key.usage == "SIGN_VERIFY" && key.deletion >= 7])
    error_message = "A signing key is of another kind, or is gone within a week."
  }

  assert {
    condition = alltrue(flatten([
      for policy in concat([for key in values(module.keys.protections.signing) : key.policy], [module.keys.protections.payload, module.keys.protections.storage]) : [
        for statement in policy.Statement : [
          for action in statement.Action : !strcontains(action, "*") && try(statement.Principal.AWS != "*", true)
        ]
      ]
    ]))
    error_message = "A key's policy has a wildcard."
  }

  assert {
    condition = alltrue([
      for key in values(module.keys.protections.signing) : length(setintersection(
        flatten([for statement in key.policy.Statement : statement.Action if statement.Sid == "Administrators"]),
        ["kms:Sign", "kms:Decrypt", "kms:Encrypt", "kms:CreateGrant"],
      )) == 0
    ])
    error_message = "Who administers a key may use it."
  }

  assert {
    condition = toset([
      for use, policy in module.service.policies : use
      if anytrue([for statement in policy.Statement : contains(statement.Action, "kms:Sign")])
    ]) == toset(["signer"])
    error_message = "A role but the signer's may sign."
  }

  assert {
    condition = toset(flatten([
      for statement in module.service.policies["signer"].Statement : statement.Resource if contains(statement.Action, "kms:Sign")
    ])) == toset(["arn:aws:kms:eu-central-1:111122223333:key/receipt-1", "arn:aws:kms:eu-central-1:111122223333:key/log-1"])
    error_message = "The signer signs with other keys than its two."
  }

  # ---- nothing with a wildcard; what AWS has no narrower word for is listed here
  assert {
    condition = length([
      for found in flatten([
        for policy in concat(values(module.service.policies), values(module.service.start_policies), values(module.network.policies)) : [
          for statement in policy.Statement : [
            for pair in setproduct(statement.Action, flatten([statement.Resource])) : "${pair[0]} on ${pair[1]}"
            # The objects of one bucket, and the streams of one log group, are no wildcard.
            if statement.Effect == "Allow" && (strcontains(pair[0], "*") || strcontains(replace(replace(pair[1], "/^arn:aws:s3:::[a-z-]+/[*]$/", ""), "/^arn:aws:logs:.*:log-group:[a-z-]+:[*]$/", ""), "*"))
          ]
        ]
      ]) : found if !contains(["ecr:GetAuthorizationToken on *"], found)
    ]) == 0
    error_message = "A role has a wildcard that is not listed."
  }

  assert {
    condition     = module.service.protections.scaled_by_requests == "ALBRequestCountPerTarget"
    error_message = "Gateways do not grow with requests."
  }

  assert {
    condition     = join(" ", module.service.protections.scaled_by_lag) == "signer sink"
    error_message = "Signer and sink do not grow with their lag."
  }

  assert {
    condition = toset(flatten([
      for policy in values(module.service.start_policies) : [
        for statement in policy.Statement : [
          for pair in setproduct(statement.Action, statement.Resource) : "${pair[0]} ${pair[1]}" if startswith(pair[0], "kms:") || startswith(pair[0], "s3:")
        ]
      ]
    ])) == toset(["kms:Decrypt arn:aws:kms:eu-central-1:111122223333:key/storage"])
    error_message = "What starts a task may do more than open its secrets."
  }

  # ---- nobody deletes receipts
  assert {
    condition = length(flatten([
      for use, policy in module.service.policies : [
        for statement in policy.Statement : [
          for action in statement.Action : "${use} ${action}"
          if startswith(action, "s3:Delete") && anytrue([for resource in statement.Resource : startswith(resource, "arn:aws:s3:::audit")])
        ]
      ]
    ])) == 0
    error_message = "A role may delete receipts."
  }

  assert {
    condition = length([
      for statement in module.service.policies["gateway"].Statement : statement
      if anytrue([for resource in statement.Resource : startswith(resource, "arn:aws:s3:::audit")])
    ]) == 0
    error_message = "The gateway has something to do with the audit bucket."
  }

  assert {
    condition = alltrue([
      for role in ["gateway", "signer", "sink", "topics", "auditor"] : anytrue([
        for statement in module.audit.protections.policy.Statement :
        statement.Effect == "Deny" && contains(flatten([statement.Action]), "s3:DeleteObjectVersion") && contains(flatten([statement.Action]), "s3:DeleteObject")
        && contains(try(statement.Condition.ArnEquals["aws:PrincipalArn"], []), "arn:aws:iam::111122223333:role/${role}")
      ])
    ])
    error_message = "The bucket does not refuse deletions by one of our roles."
  }

  # ---- the auditor
  assert {
    condition = toset(flatten([for statement in module.service.policies["auditor"].Statement : [
      for pair in setproduct(statement.Action, statement.Resource) : "${pair[0]} ${pair[1]}"
      ]])) == toset([
      "s3:ListBucket arn:aws:s3:::audit",
      "s3:GetObject arn:aws:s3:::audit/*",
      "kms:GetPublicKey arn:aws:kms:eu-central-1:111122223333:key/root",
      "kms:GetPublicKey arn:aws:kms:eu-central-1:111122223333:key/receipt-1",
      "kms:GetPublicKey arn:aws:kms:eu-central-1:111122223333:key/log-1",
    ])
    error_message = "The auditor can do something else than read receipts and public keys."
  }

  assert {
    condition     = alltrue([for statement in module.identities.trust["auditor"].Statement : statement.Condition.Bool["aws:MultiFactorAuthPresent"] == "true"])
    error_message = "The auditor's role is taken without a second factor."
  }

  # ---- what applications need
  assert {
    condition     = output.base_url == "https://llm.example.internal/v1" && output.topics["wal"] == "cachemind.wal" && length(output.keys) == 3
    error_message = "An output that applications need is missing."
  }

  # ---- what operators need
  assert {
    condition = (
      output.topics_task.launchType == "FARGATE"
      && output.topics_task.platformVersion == "1.4.0"
      && output.topics_task.networkConfiguration.awsvpcConfiguration.assignPublicIp == "DISABLED"
      && output.topics_task.networkConfiguration.awsvpcConfiguration.subnets == tolist(module.network.subnet_ids)
      && output.topics_task.networkConfiguration.awsvpcConfiguration.securityGroups == ["sg-topics"]
    )
    error_message = "The task of topics is started elsewhere than in the private subnets and its own group."
  }

  assert {
    condition     = join(" ", module.network.endpoints) == "ecr.api ecr.dkr kms logs s3 secretsmanager"
    error_message = "A service of AWS cannot be reached from the private subnets."
  }

  # ---- alarms
  assert {
    condition = length(setsubtract(
      ["fold-lag", "fold-halted", "dead-letters", "quarantined", "collector", "receipts-lag", "sealing-lag", "cut-age", "signing-stopped", "cutting-stopped", "sealing-stopped", "irregular-receipts", "refused-keys", "5xx", "gateway-disk", "signer-disk", "sink-disk"],
      [for alarm in module.observability.alarms : trimprefix(alarm, "llm-")],
    )) == 0
    error_message = "An alarm is missing."
  }
}

run "for_the_hour_of_keys" {
  # And with grants, which have nothing to do with it: one plan less.
  command = plan
  variables {
    key_ceremony = ["arn:aws:iam::111122223333:role/officer"]
    running      = false
    grants = [
      { namespace = "a.shop", role = "cache-writer", user = "app" },
      { namespace = "a.shop", role = "cache-writer", user = "other" },
      { namespace = "a.shop", role = "cache-reader", user = "other" },
    ]
  }

  assert {
    condition = contains(keys(module.service.policies), "ceremony") && length([
      for statement in module.keys.protections.signing["root"].policy.Statement : statement if statement.Sid == "Sign" && contains(statement.Action, "kms:Sign")
    ]) == 1
    error_message = "Nobody can make the keys."
  }

  assert {
    condition = toset([
      for acl in module.topics.acls : "${acl.name} ${join(" ", acl.operations)}" if acl.principal == "User:ceremony" && contains(acl.operations, "write")
    ]) == toset(["cachemind.wal read write"])
    error_message = "The ceremony cannot put its keys on the log, or writes elsewhere."
  }

  # ---- grants
  assert {
    condition = toset([for topic in jsondecode(module.topics.plan).topics : "${topic.name} ${topic.partitions}" if can(regex("^cachemind\\.(requests|replies)\\.", topic.name))]) == toset([
      "cachemind.requests.a.shop.cache-writer 1", "cachemind.replies.a.shop.cache-writer 1",
      "cachemind.requests.a.shop.cache-reader 1", "cachemind.replies.a.shop.cache-reader 1",
    ])
    error_message = "A grant has other topics than its two."
  }

  assert {
    condition = alltrue([for name, topic in module.topics.topics : (
      topic.settings == module.topics.topics[split(".", name)[0]].settings && topic.replication_factor == 3
    ) if startswith(name, "requests.") || startswith(name, "replies.")])
    error_message = "A grant's topics are kept otherwise than those that all share."
  }

  assert {
    condition = toset([for acl in module.topics.acls : "${acl.resource} ${acl.pattern} ${acl.name} ${join(" ", acl.operations)}" if acl.principal == "User:app"]) == toset([
      "topic literal cachemind.requests.a.shop.cache-writer describe write",
      "topic literal cachemind.replies.a.shop.cache-writer describe read",
      "group prefixed cachemind.client.a.shop.cache-writer: read",
    ])
    error_message = "An application may do something else than ask and hear its answers."
  }

  assert {
    condition     = length([for acl in module.topics.acls : acl if acl.principal == "User:other"]) == 6 && join(" ", jsondecode(module.topics.plan).only) == "cachemind.requests. cachemind.replies. cachemind.client."
    error_message = "A user with two grants has not both, or one who has lost a grant keeps it."
  }

  assert {
    condition     = alltrue([for capacity in module.service.protections.capacity : capacity.min == 0 && capacity.max == 0])
    error_message = "Something starts before it is told to."
  }
}
