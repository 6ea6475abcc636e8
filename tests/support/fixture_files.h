// The models in tests/fixtures/models: their names, their archives, and the results that stock
// PyTorch has for them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/places.h"

namespace dslaunch::test {

inline nlohmann::json fixture_facts(const std::string& name) {
    std::ifstream file(fixture_path("models/" + name + ".json"));
    return nlohmann::json::parse(file);
}

// Returns the path of the fixture's archive, which is TorchScript or an exported program.
inline std::string fixture_archive(const std::string& name) {
    const std::string exported = fixture_path("models/" + name + ".pt2");
    return std::filesystem::exists(exported) ? exported : fixture_path("models/" + name + ".pt");
}

// Returns the names of all fixtures, sorted.
inline std::vector<std::string> fixture_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(fixture_path("models")))
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace dslaunch::test
