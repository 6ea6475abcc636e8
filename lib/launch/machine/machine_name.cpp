#include "launch/machine/machine_name.h"

#include <unistd.h>

#include <climits>

namespace dslaunch::launch {

std::string machine_name(const std::string& unnamed) {
    char name[HOST_NAME_MAX + 1] = {};
    return ::gethostname(name, HOST_NAME_MAX) == 0 && name[0] != '\0' ? name : unnamed;
}

}  // namespace dslaunch::launch
