// Secrets, which must not leave this machine in a report or on a screen: values of variables with
// telling names, passwords in URLs, private keys, tokens of known forms. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

inline constexpr std::string_view kHiddenValue = "(hidden)";

// The name of a variable or option contains KEY, TOKEN, SECRET, PASS, _PWD, CREDENTIAL, AUTH or
// WEBHOOK, or one of its parts is DSN, SESSION, COOKIE, SIG or SIGNATURE, in either case. A few
// words that hold one of these are none: TOKENIZER, TOKENS, KeyError, PASSED, AUTHOR,
// XDG_SESSION_….
[[nodiscard]] bool is_secret_name(std::string_view name);

// The value of the variable NAME may stand in a file that people pass on (run.json): dslaunch's own
// variables, those with a prefix that is forwarded, and paths, locale and limits of every machine.
// A program's own variables may not, since nobody knows what they hold.
[[nodiscard]] bool is_shown_in_files(std::string_view name);

// A URL with a password, as scheme://user:password@host.
[[nodiscard]] bool holds_password(std::string_view value);

// VALUE of the variable NAME as it may be shown: kHiddenValue by one of the two above, else what
// hide_secrets() leaves of it.
[[nodiscard]] std::string shown_value(std::string_view name, std::string_view value);

// TEXT with kHiddenValue in the place of each secret that can be known by its form: NAME=VALUE,
// NAME: VALUE, --name VALUE and "NAME": "VALUE" with such a name, the password in
// scheme://user:password@host and in scheme://key@host (a DSN), a signature in a URL's query, the
// path of a webhook, what stands between BEGIN and END of a private key, and words that begin as
// the tokens of well-known services do (hf_, ghp_, sk-, AKIA …). Lines over 4 KiB are cut.
[[nodiscard]] std::string hide_secrets(std::string_view text);

// The words of a command as they may be shown: hide_secrets() of each, and kHiddenValue for the
// word behind an option whose name tells a secret (--api-key WORD).
[[nodiscard]] std::vector<std::string> hide_in_command(const std::vector<std::string>& words);

}  // namespace dslaunch::launch
