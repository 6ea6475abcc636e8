#include "launch/machine/user_name.h"

#include <pwd.h>

#include <vector>

#include "base/text.h"

namespace dslaunch::launch {

std::string user_name(uid_t user) {
    constexpr size_t kEntryBytes = 16'384;
    passwd entry{};
    passwd* found = nullptr;
    std::vector<char> strings(kEntryBytes);
    if (::getpwuid_r(user, &entry, strings.data(), strings.size(), &found) == 0 && found != nullptr)
        return printable(entry.pw_name);
    return std::to_string(user);
}

}  // namespace dslaunch::launch
