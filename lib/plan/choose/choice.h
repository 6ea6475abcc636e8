// The result of a choice: its value, its cost and its reason. A value type.
#pragma once

#include <string>
#include <variant>

namespace dslaunch::plan {

// A value that was chosen, such as a number of chunks to keep in memory, and the reason for it. If
// values are not compared by cost, the type Cost is left out.
template <typename Value, typename Cost = std::monostate>
struct Choice {
    Value value = {};
    Cost cost = {};   // cost of VALUE; its unit depends on the choice
    std::string why;  // one line
};

}  // namespace dslaunch::plan
