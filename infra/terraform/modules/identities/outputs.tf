output "roles" {
  description = "Who exists: name and ARN of each role by what it is for. No ceremony, no entry."
  value = {
    for use, role in merge(aws_iam_role.task, aws_iam_role.person) :
    use => { name = role.name, arn = role.arn }
  }
}

output "execution_roles" {
  description = "Roles that start a task, by task."
  value       = { for use, role in aws_iam_role.execution : use => { name = role.name, arn = role.arn } }
}

output "trust" {
  description = "Who may take each role: trust policies as decoded JSON."
  value = {
    for use, role in merge(aws_iam_role.task, aws_iam_role.person) :
    use => jsondecode(role.assume_role_policy)
  }
}
