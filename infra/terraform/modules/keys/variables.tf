variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "roles" {
  type        = map(object({ name = string, arn = string }))
  description = "Roles by what they are for, as module identities gives them."
}

variable "execution_roles" {
  type        = map(object({ name = string, arn = string }))
  description = "Roles that start tasks."
}

variable "administrators" {
  type        = list(string)
  description = "ARNs of who may describe, disable and delete keys, and never use them. Whoever applies is among them, or AWS refuses."
  validation {
    condition     = length(var.administrators) > 0 && alltrue([for arn in var.administrators : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[^*]+$", arn))])
    error_message = "administrators are ARNs of IAM roles or users, with no wildcard; name at least one."
  }
  validation {
    condition     = length(setintersection(var.administrators, [for role in values(var.roles) : role.arn])) == 0
    error_message = "administrators must not be one of CacheMind's own roles: who signs does not administer."
  }
}

variable "deletion_window_days" {
  type        = number
  default     = 30
  description = "How long a deletion can be taken back."
  validation {
    condition     = var.deletion_window_days >= 7 && var.deletion_window_days <= 30
    error_message = "deletion_window_days is from 7 to 30."
  }
}

variable "generations" {
  type        = object({ receipt = number, log = number })
  default     = { receipt = 1, log = 1 }
  description = "How many keys there are of each kind; one more to exchange one. The older ones stay: what they signed is verified with them."
  validation {
    condition     = alltrue([for number in values(var.generations) : number >= 1 && floor(number) == number])
    error_message = "generations gives receipt and log a whole number from 1."
  }
}

variable "data_keys_bucket" {
  type        = string
  description = "Name of the bucket of wrapped data keys."
}

variable "access_log_bucket" {
  type        = string
  description = "Bucket that takes access logs."
}
