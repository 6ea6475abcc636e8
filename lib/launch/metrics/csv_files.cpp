#include "launch/metrics/csv_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"

namespace dslaunch::launch {
namespace {

constexpr std::string_view kFilePrefix = "Train_Samples_";
constexpr std::string_view kEnding = ".csv";
constexpr size_t kFileBytesMax = size_t{1} << 30;

std::string file_name(std::string_view event) {
    std::string name(event);
    std::ranges::replace(name, '/', '_');
    std::ranges::replace(name, ' ', '_');
    return name;
}

// Returns VALUE as Python prints a float: the shortest text that reads back equal, always with a
// point or an exponent.
std::string python_float(double value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
    return text;
}

// Returns the files in FOLDER that have names of csv_monitor's files.
std::vector<std::string> csv_files_in(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(kFilePrefix) && name.ends_with(kEnding)) files.push_back(name);
    }
    std::ranges::sort(files);
    return files;
}

// Returns how many bytes of TEXT to keep: all whole lines before the first row whose sample count
// is SAMPLES or more.
size_t kept_length(std::string_view text, int64_t samples) {
    size_t begin = 0;
    while (begin < text.size()) {
        const size_t end = text.find('\n', begin);
        if (end == std::string_view::npos) return begin;
        int64_t number = -1;  // stays -1 for a header
        std::from_chars(text.data() + begin, text.data() + end, number);
        if (number >= samples) return begin;
        begin = end + 1;
    }
    return begin;
}

int cut_rows(const std::string& path, int64_t samples) {
    std::string text;
    try {
        text = read_file(path, kFileBytesMax);
    } catch (const Error&) {
        return -EFBIG;
    }
    const size_t kept = kept_length(text, samples);
    if (kept == text.size()) return 0;
    return ::truncate(path.c_str(), static_cast<off_t>(kept)) == 0 ? 0 : -errno;
}

int move_away(const std::string& folder, const std::vector<std::string>& files) {
    std::string other;
    for (int number = 1;; ++number) {
        other = fmt::format("{}/earlier-{}", folder, number);
        if (::mkdir(other.c_str(), 0777) == 0) break;
        if (errno != EEXIST) return -errno;
    }
    for (const std::string& file : files)
        if (::rename(fmt::format("{}/{}", folder, file).c_str(),
                     fmt::format("{}/{}", other, file).c_str()) != 0)
            return -errno;
    log_warn("launch", "the CSV files of an earlier run in {} are now in {}", folder, other);
    return 0;
}

}  // namespace

std::string CsvFiles::name() const {
    return fmt::format("csv_monitor's files in {}", folder_);
}

int CsvFiles::begin(int64_t samples, bool is_new_run) {
    const std::vector<std::string> files = csv_files_in(folder_);
    if (is_new_run) return files.empty() ? 0 : move_away(folder_, files);
    int first_error = 0;
    for (const std::string& file : files) {
        const int status = cut_rows(fmt::format("{}/{}", folder_, file), samples);
        if (first_error == 0) first_error = status;
    }
    return first_error;
}

int CsvFiles::write(const MetricsRecord& record, int64_t samples) {
    int first_error = 0;
    for (const MetricEvent& event : record.events) {
        const std::string path = fmt::format("{}/{}{}", folder_, file_name(event.name), kEnding);
        const UniqueFd file(
            ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
        int status = file.valid() ? 0 : -errno;
        if (status == 0) {
            const off_t end = ::lseek(file.get(), 0, SEEK_END);
            std::string text;
            if (end == 0)
                text = fmt::format("step,{}\r\n", event.name.substr(event.name.rfind('/') + 1));
            text += fmt::format("{},{}\r\n", samples, python_float(event.value));
            status = write_full(file.get(), text);
            if (status != 0) static_cast<void>(::ftruncate(file.get(), end));
        }
        if (first_error == 0) first_error = status;
    }
    return first_error;
}

}  // namespace dslaunch::launch
