// Finds the Python class of a module. An archive contains it only in the name of the module's
// TorchScript type. Pure, no threads.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::storage {

inline constexpr std::string_view kLinearClass = "torch.nn.modules.linear.Linear";

// Returns the class: "torch.nn.modules.linear.Linear" for
// "__torch__.torch.nn.modules.linear.___torch_mangle_3.Linear". For a module that is built into
// dslaunch, returns the corresponding class in Python.
[[nodiscard]] std::string class_of_type(std::string_view type_name);

// Returns the name of a type for a module of class CLASS_NAME, different for each NUMBER. Leaves
// the class out if it is empty or is not a valid name in TorchScript.
[[nodiscard]] std::string type_of_class(std::string_view class_name, int number);

// Returns true if NAME, as Python code imports it, is the class CLASS_NAME: "torch.nn.Linear" is
// "torch.nn.modules.linear.Linear".
[[nodiscard]] bool names_class(std::string_view name, std::string_view class_name);

}  // namespace dslaunch::storage
