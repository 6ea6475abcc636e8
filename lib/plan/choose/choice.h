// The result of a choice: its value, its cost and its reason. A value type.
#pragma once

#include <string>

namespace dslaunch::plan {

template <typename Value, typename Cost>
struct Choice {
    Value value = {};
    Cost cost = {};   // VALUE's, as the choice counts it
    std::string why;  // one line
};

}  // namespace dslaunch::plan
