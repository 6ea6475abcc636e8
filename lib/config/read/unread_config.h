// A warning about a config file that is not read, because the model's archive contains a config.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::config {

// Returns a warning that the file BESIDE is not read, because the model's archive contains the
// config PACKED. NAME: the name of PACKED in the warning. Returns an empty text if BESIDE does not
// exist, or if its text equals PACKED. Blocks on the disk.
[[nodiscard]] std::string unread_config_text(std::string_view packed, const std::string& name,
                                             const std::string& beside);

}  // namespace dslaunch::config
