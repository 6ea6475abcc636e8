// A config text that is resolved without problems, and its values.
#pragma once

#include <string>
#include <vector>

#include "config/resolve/resolve.h"
#include "support/catch.h"

namespace dslaunch::test {

inline config::Resolved resolved(const std::string& text, int64_t world_size = 1) {
    config::ResolveOptions options;
    options.world_size = world_size;
    config::Resolved result = config::resolve(config::parse_config(text, "c"), options);
    for (const config::Problem& problem : result.problems) UNSCOPED_INFO(problem.text());
    CHECK(result.problems.empty());
    return result;
}

// Returns the texts of PROBLEMS, one a line.
inline std::string texts_of(const std::vector<config::Problem>& problems) {
    std::string texts;
    for (const config::Problem& problem : problems) texts += problem.text() + "\n";
    return texts;
}

inline const config::ResolvedValue& value_at(const config::Resolved& result,
                                             const std::string& path) {
    for (const config::ResolvedValue& value : result.values)
        if (value.path == path) return value;
    FAIL(path << " is not among the values");
    return result.values.front();
}

}  // namespace dslaunch::test
