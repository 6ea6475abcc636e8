// The Python class of a module, as far as an archive shows it: in the name of the module's
// TorchScript type. Pure, no threads.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::storage {

inline constexpr std::string_view kLinearClass = "torch.nn.modules.linear.Linear";

// Returns the class, for dslaunch's own modules Python's: "torch.nn.modules.linear.Linear" of
// "__torch__.torch.nn.modules.linear.___torch_mangle_3.Linear".
[[nodiscard]] std::string class_of_type(std::string_view type_name);

// Returns a type's name for a module of CLASS, one for each NUMBER. It leaves the class out if that
// is empty or not a name in TorchScript.
[[nodiscard]] std::string type_of_class(std::string_view class_name, int number);

// True if NAME, as Python imports it, is the class CLASS: "torch.nn.Linear" is
// "torch.nn.modules.linear.Linear".
[[nodiscard]] bool names_class(std::string_view name, std::string_view class_name);

}  // namespace dslaunch::storage
