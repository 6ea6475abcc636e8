// Reads the user's ssh configuration for one host, by ssh's rules: the directives that apply, with
// file and line. Reads files and runs `Match exec` commands; contacts no host. It does not use
// libssh's own reader, which skips directives that it does not know.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// The host and the user for whom the configuration is read.
struct SshConfigRequest {
    std::string name;         // name in the hostfile
    std::string config_path;  // empty: ~/.ssh/config, then the system's
    std::string home;
    std::string local_user;
    // Directives that take precedence over all files, like ssh's command-line options. The first
    // text is the keyword in lower case, the second is the value.
    std::vector<std::pair<std::string, std::string>> given;
};

// A line of the configuration: its words after the keyword, and its place.
struct SshDirective {
    std::vector<std::string> words;
    std::string file;  // empty: from SshConfigRequest::given
    int line = 0;

    [[nodiscard]] std::string where() const;  // "FILE:LINE"
};

// Keyword in lower case -> the directive that applies; for IdentityFile and CertificateFile, all
// directives.
using SshDirectives = std::map<std::string, std::vector<SshDirective>>;

// Reads the configuration. Throws Error{kUsage}, naming file, line and directive, for an unknown
// keyword, a `Match` condition that only the ssh program supports, a named file that cannot be
// read, or a command of `Match exec` that does not end within 10 s.
[[nodiscard]] SshDirectives read_ssh_config(const SshConfigRequest& request);

// Returns the first directive with KEYWORD; null if it is not set.
[[nodiscard]] const SshDirective* find_directive(const SshDirectives& directives,
                                                 const std::string& keyword);

// Returns true if TEXT matches PATTERN, a shell-like pattern with `*` and `?`.
[[nodiscard]] bool matches_pattern(std::string_view text, std::string_view pattern);

// The classes of keywords, by their effect on the built-in ssh.
enum class SshKeyword {
    kUnknown,
    kUsed,
    // Has no effect on a connection that carries one command and asks no questions.
    kIgnored,
    // A different kind of credential. If the server refuses the keys, the error names this keyword.
    kOtherCredential,
    // Changes a connection in a way that libssh does not support. Such a directive is an error,
    // unless its value changes nothing.
    kRefused,
};

// Returns the class of KEYWORD, which is in lower case.
[[nodiscard]] SshKeyword classify_ssh_keyword(std::string_view keyword);

// Returns true if VALUE of a refused KEYWORD changes nothing: "no", "none", or ssh's default.
[[nodiscard]] bool asks_for_nothing(std::string_view keyword, std::string_view value);

}  // namespace dslaunch::launch
