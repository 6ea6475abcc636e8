// The time to compile this file is the unit of tools/build-cost.sh. The file has the standard
// library, nlohmann's JSON and a few instantiations, like a usual file of the tree. It is not part
// of any program.
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

std::string reference(const std::string& text) {
    std::map<std::string, std::vector<int>> counts;
    const std::regex word("[a-z]+");
    for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it)
        counts[it->str()].push_back(static_cast<int>(it->position()));
    return nlohmann::json(counts).dump();
}
