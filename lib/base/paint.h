// Colours of dslaunch's own words on a terminal. Any thread.
#pragma once

#include <string>

namespace dslaunch {

// True: FD is a terminal that obeys colours, and NO_COLOR (no-color.org) is unset or empty.
[[nodiscard]] bool takes_colours(int fd);

// TEXT with `error:` behind `dslaunch: ` at its beginning in red, `warning:` in yellow.
[[nodiscard]] std::string painted(std::string text);

}  // namespace dslaunch
