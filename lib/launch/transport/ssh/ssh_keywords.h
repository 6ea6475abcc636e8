// The use that the built-in ssh makes of each keyword of ssh_config(5).
#pragma once

#include <string_view>

namespace dslaunch::launch {

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

// KEYWORD in lower case.
[[nodiscard]] SshKeyword classify_ssh_keyword(std::string_view keyword);

// True: VALUE of a refused KEYWORD asks for nothing: "no", "none", or ssh's default.
[[nodiscard]] bool asks_for_nothing(std::string_view keyword, std::string_view value);

}  // namespace dslaunch::launch
