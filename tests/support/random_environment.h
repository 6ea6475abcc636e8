// Variables whose values are any bytes except NUL, and the variables that a rank reports.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>

namespace dslaunch::test {

using Variables = std::map<std::string, std::string>;

// Returns COUNT variables V0000, V0001, … with values that are empty, difficult, or up to 96 random
// bytes.
inline Variables random_variables(int count, std::mt19937& engine) {
    const std::string hard[] = {"",         " ",        "\n",       "a\nb\n", "'",   "\"",
                                "$(id)",    "`id`",     "$HOME",    "\\",     "\\n", "a=b=c",
                                "\xff\xfe", "\xc3\x28", "\x1b[31m", "%h%n",   "#x",  "-o X",
                                "\r\n",     "\t tab ",  "\"a' b",   "*",      "~",   "!x;&|<>"};
    Variables variables;
    for (int i = 0; i < count; ++i) {
        char name[16];
        std::snprintf(name, sizeof name, "V%06d", i);
        std::string value;
        if (static_cast<size_t>(i) < std::size(hard)) {
            value = hard[i];
        } else {
            value.resize(engine() % 97);
            for (char& c : value) c = static_cast<char>(1 + engine() % 255);
        }
        variables[name] = value;
    }
    return variables;
}

// Sets variables in this process while the object exists.
class EnvironmentScope {
  public:
    explicit EnvironmentScope(Variables variables) : variables_(std::move(variables)) {
        for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
    }
    EnvironmentScope(const EnvironmentScope&) = delete;
    EnvironmentScope& operator=(const EnvironmentScope&) = delete;
    ~EnvironmentScope() {
        for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
    }

  private:
    Variables variables_;
};

// Reads the entries NAME=VALUE, each ended by a NUL, that `stub_rank environment` writes.
inline Variables read_variables(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Variables found;
    for (std::string entry; std::getline(file, entry, '\0');) {
        const size_t equals = entry.find('=');
        found[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    return found;
}

// Returns how many of the variables WANTED are missing in GOT or have another value there.
inline int mismatches(const Variables& wanted, const Variables& got) {
    int count = 0;
    for (const auto& [name, value] : wanted) {
        const auto found = got.find(name);
        count += found == got.end() || found->second != value ? 1 : 0;
    }
    return count;
}

// Returns VALUE in quotes for an --env-file; a newline is written as \n.
inline std::string quoted_for_file(const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\' || c == '$' || c == '`') text += '\\';
        text += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return text + "\"";
}

}  // namespace dslaunch::test
