#include "storage/disk/disk_facts.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kFileBytesMax = 1 << 16;
constexpr size_t kIdLettersMax = 64;
constexpr int64_t kSectorBytes = 512;  // the unit in sysfs, not the disk's own sector

std::string plain_word(std::string_view text) {
    std::string word(trim(text.substr(0, text.find('\n'))).substr(0, kIdLettersMax));
    for (char& letter : word) {
        const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                           (letter >= 'A' && letter <= 'Z') || letter == '.' || letter == '-';
        if (!plain) letter = '_';
    }
    return word;
}

// Returns the first line of a sysfs file as one plain word; empty if it cannot be read.
std::string word_in(const std::filesystem::path& path) {
    try {
        if (::access(path.c_str(), R_OK) == 0)
            return plain_word(read_file(path.string(), kFileBytesMax));
    } catch (const Error&) {  // some attributes cannot be read for some disks
    }
    return {};
}

// Returns the sysfs folder of the whole disk, also if DEVICE is a partition; empty if there is no
// disk.
std::filesystem::path disk_folder(dev_t device) {
    std::error_code error;  // set if there is no disk: sysfs then lacks the link
    std::filesystem::path disk = std::filesystem::canonical(
        fmt::format("/sys/dev/block/{}:{}", major(device), minor(device)), error);
    if (error) return {};
    return std::filesystem::exists(disk / "partition", error) ? disk.parent_path() : disk;
}

// Returns a text such as "12.3 MB", in powers of 1000.
std::string decimal_text(Bytes bytes) {
    auto value = static_cast<double>(bytes.value);
    const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < std::size(units); ++unit) value /= 1000;
    return fmt::format("{:.{}f} {}", value, unit > 0 && value < 100 ? 1 : 0, units[unit]);
}

}  // namespace

DiskFacts disk_facts(const std::string& folder) {
    struct stat info {};
    const int status = ::stat(folder.c_str(), &info) == 0 ? 0 : errno;
    if (status != 0 || !S_ISDIR(info.st_mode))
        fail(ExitCode::kDisk, "{}: {}; give an existing folder on the disk to be used",
             printable(folder),
             status == ENOENT ? "no such folder"
             : status == 0    ? "is not a folder"
                              : errno_text(status));
    utsname machine{};
    ::uname(&machine);
    DiskFacts facts;
    const std::filesystem::path disk = disk_folder(info.st_dev);
    std::string name = fmt::format("dev-{}-{}", major(info.st_dev), minor(info.st_dev));
    if (!disk.empty()) {
        facts.device = disk.filename().string();
        facts.capacity = Bytes{parse_int(word_in(disk / "size")).value_or(0) * kSectorBytes};
        for (const char* attribute :
             {"device/serial", "serial", "md/uuid", "dm/uuid", "device/wwid", "wwid"}) {
            const std::string word = word_in(disk / attribute);
            if (!word.empty()) name = word;
        }
    }
    facts.id = fmt::format("{}:{}", plain_word(machine.nodename), name);
    return facts;
}

double drive_writes_per_day(Bytes written, Duration over, Bytes capacity) {
    DSL_CHECK(over.count() > 0 && capacity.value > 0, "{} ns and {} bytes must both be above 0",
              over.count(), capacity.value);
    const std::chrono::duration<double, std::ratio<86400>> days = over;
    return static_cast<double>(written.value) / static_cast<double>(capacity.value) / days.count();
}

std::string wear_text(const std::string& folder, Bytes written, Duration step, Bytes capacity) {
    const std::string start =
        fmt::format("{} written per step to {}", decimal_text(written), printable(folder));
    if (capacity.value == 0)
        return start + "; the wear is unknown, because the capacity of the drive is unknown";
    const double per_day = drive_writes_per_day(written, step, capacity);
    return fmt::format("{}; at this rate {:.{}f} drive writes per day (capacity {})", start,
                       per_day, per_day < 10 ? 2 : 0, decimal_text(capacity));
}

}  // namespace dslaunch::storage
