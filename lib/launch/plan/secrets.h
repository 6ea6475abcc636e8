// Hides secrets, which must not leave this machine in a report or appear on a screen: values of
// variables whose names suggest a secret, passwords in URLs, private keys, tokens of known forms.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

inline constexpr std::string_view kHiddenValue = "(hidden)";

// Returns true if NAME, of a variable or option, contains KEY, TOKEN, SECRET, PASS, _PWD,
// CREDENTIAL, AUTH or WEBHOOK, or has a part DSN, SESSION, COOKIE, SIG or SIGNATURE, in upper or
// lower case. A few words are exceptions: TOKENIZER, TOKENS, KeyError, PASSED, AUTHOR,
// XDG_SESSION_….
[[nodiscard]] bool is_secret_name(std::string_view name);

// Returns true if the value of the variable NAME may appear in a file that people pass on
// (run.json): dslaunch's own variables, forwarded prefixes, and the paths, locale and limits that
// every machine has. Returns false for a program's own variables, since their content is unknown.
[[nodiscard]] bool is_shown_in_files(std::string_view name);

// Returns true for a URL with a password, such as scheme://user:password@host.
[[nodiscard]] bool holds_password(std::string_view value);

// Returns VALUE of the variable NAME in the form that may be shown: kHiddenValue if
// is_secret_name() or holds_password() is true for it, else the result of hide_secrets().
[[nodiscard]] std::string shown_value(std::string_view name, std::string_view value);

// Replaces each secret in TEXT that has a known form by kHiddenValue: NAME=VALUE, NAME: VALUE,
// --name VALUE and "NAME": "VALUE" with a secret's name, the password in
// scheme://user:password@host and in scheme://key@host (a DSN), a signature in a URL's query, the
// path of a webhook, the text between BEGIN and END of a private key, and words that begin like the
// tokens of well-known services (hf_, ghp_, sk-, AKIA …). Cuts lines over 4 KiB.
[[nodiscard]] std::string hide_secrets(std::string_view text);

// Returns the words of a command in the form that may be shown: hide_secrets() of each word, and
// kHiddenValue for the word after an option with a secret's name (--api-key WORD).
[[nodiscard]] std::vector<std::string> hide_in_command(const std::vector<std::string>& words);

}  // namespace dslaunch::launch
