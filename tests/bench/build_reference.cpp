// The file whose compile time is the unit of tools/build-cost.sh: the standard library, nlohmann's
// JSON and a few instantiations, as a usual file of the tree has them. It is in no program.
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
