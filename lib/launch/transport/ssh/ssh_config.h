// Reads the user's ssh configuration as ssh does, for one host: the directives that apply, with
// file and line. Reads files and runs `Match exec` commands; contacts no host. It does not use
// libssh's own reader, which skips what it does not know.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

struct SshConfigRequest {
    std::string name;         // name in the hostfile
    std::string config_path;  // empty: ~/.ssh/config, then the system's
    std::string home;
    std::string local_user;
    // Directives that come before any file's, as ssh's options on the command line: keyword in
    // lower case, value.
    std::vector<std::pair<std::string, std::string>> given;
};

struct SshDirective {
    std::vector<std::string> words;
    std::string file;  // empty: given
    int line = 0;

    [[nodiscard]] std::string where() const;  // "FILE:LINE"
};

// Keyword in lower case -> the directive that applies; all for IdentityFile, CertificateFile.
using SshDirectives = std::map<std::string, std::vector<SshDirective>>;

// Reads the configuration. Throws Error{kUsage} that names file, line and directive: an unknown
// keyword, a `Match` condition that only the ssh program knows, a named file that cannot be read, a
// command of `Match exec` that does not end within 10 s.
[[nodiscard]] SshDirectives read_ssh_config(const SshConfigRequest& request);

// Returns the first directive of KEYWORD; null: it is not set.
[[nodiscard]] const SshDirective* find_directive(const SshDirectives& directives,
                                                 const std::string& keyword);

// Returns true if TEXT fits PATTERN, which is shell-like with `*` and `?`.
[[nodiscard]] bool matches_pattern(std::string_view text, std::string_view pattern);

enum class SshKeyword {
    kUnknown,
    kUsed,
    // Has no effect on a connection that carries one command and asks nobody.
    kIgnored,
    // Another credential, which is named if the keys alone are refused.
    kOtherCredential,
    // Changes a connection in a way that libssh cannot follow: an error unless its value asks for
    // nothing.
    kRefused,
};

// Classifies KEYWORD, in lower case.
[[nodiscard]] SshKeyword classify_ssh_keyword(std::string_view keyword);

// Returns true if VALUE of a refused KEYWORD asks for nothing: "no", "none", or ssh's default.
[[nodiscard]] bool asks_for_nothing(std::string_view keyword, std::string_view value);

}  // namespace dslaunch::launch
