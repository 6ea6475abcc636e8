// What --lora says, as overrides of the config. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::config {

// The overrides that SPEC stands for: "r=16,alpha=32,targets=*.q_proj,*.v_proj" sets keys of
// dslaunch.lora; a piece without `=` is one more name in the list before it. Throws Error{kUsage}
// naming the piece.
[[nodiscard]] std::vector<std::string> lora_overrides(const std::string& spec);

}  // namespace dslaunch::config
