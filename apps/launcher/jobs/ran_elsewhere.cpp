#include "launcher/jobs/ran_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launcher/jobs/known_jobs.h"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
    std::error_code unreadable;
    return fs::exists(path, unreadable);
}

// Returns the place that NAME means in FOLDER.
fs::path place_in(const std::string& folder, const std::string& name) {
    const fs::path place = (fs::path(folder) / name).lexically_normal();
    return place.has_filename() ? place : place.parent_path();
}

// Returns WORDS without options; of `--option=VALUE`, returns VALUE.
std::vector<std::string> values_of(std::span<const std::string> words) {
    std::vector<std::string> values;
    for (const std::string& word : words) {
        const size_t equals = word.find('=');
        if (!word.starts_with('-')) {
            values.push_back(word);
        } else if (equals != std::string::npos) {
            values.push_back(word.substr(equals + 1));
        }
    }
    std::erase(values, "");
    return values;
}

std::string text_about(std::span<const std::string> words) {
    const std::vector<std::string> values = values_of(words);
    std::vector<std::string> missing;
    for (const std::string& value : values)
        if (!value.starts_with('/') && !is_there(value)) missing.push_back(value);
    if (missing.empty()) return "";
    for (const KnownJob& job : read_jobs(own_state_directory())) {
        const std::string& folder = job.working_directory;
        const auto is_named = [&](const std::string& value) {
            return value == job.target ||
                   (!job.output.empty() && place_in(folder, value) == fs::path(job.output));
        };
        if (!job.is_here || std::ranges::none_of(values, is_named)) continue;
        for (const std::string& name : missing)
            if (is_there(place_in(folder, name)))
                return fmt::format("; {} is in {}, where job {} ran: cd {}", printable(name),
                                   printable(folder), job.id, shell_word(folder));
    }
    return "";
}

}  // namespace

std::string ran_elsewhere_text(std::span<const std::string> words) {
    try {
        return text_about(words);
    } catch (const std::exception&) {  // there is no state folder
        return "";
    }
}

}  // namespace dslaunch::launcher
