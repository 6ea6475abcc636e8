#include "launch/metrics/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/files/append_file.h"

namespace dslaunch::launch {
namespace {

// Removes an incomplete last line.
void cut_torn_line(const UniqueFd& file, const std::string& path) {
    const off_t length = ::lseek(file.get(), 0, SEEK_END);
    off_t end = length;
    char byte = '\n';
    while (end > 0 && ::pread(file.get(), &byte, 1, end - 1) == 1 && byte != '\n') --end;
    if (end != length && ::ftruncate(file.get(), end) != 0) {
        fail(ExitCode::kDisk, "{}: cannot remove the incomplete last line: {}", path,
             errno_text(errno));
    }
}

bool is_removed(const UniqueFd& file) {
    struct stat status {};
    return ::fstat(file.get(), &status) == 0 && status.st_nlink == 0;
}

}  // namespace

MetricsFile::MetricsFile(std::string folder) : folder_(std::move(folder)) {
    do {
        file_ = open_for_append(path());
        lock();
    } while (is_removed(file_));  // a refused job removes its file while it holds the lock
    cut_torn_line(file_, path());
}

bool MetricsFile::is_held(const std::string& folder) {
    const UniqueFd file(::open((folder + "/metrics.jsonl").c_str(), O_RDONLY | O_CLOEXEC));
    return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Locks the file, because a file with the lines of two jobs would be useless.
void MetricsFile::lock() const {
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
    if (errno == EWOULDBLOCK)
        fail(ExitCode::kCheckpoint,
             "{}: another job is writing there: wait until it ends, or give another --output",
             folder_);
    log_warn("launch", "cannot lock {}: {}; make sure that no other job writes there", path(),
             errno_text(errno));
}

int MetricsFile::begin(int64_t /*samples*/, bool is_new_run) {
    return is_new_run && ::lseek(file_.get(), 0, SEEK_END) > 0 ? set_aside() : 0;
}

int MetricsFile::write(const MetricsRecord& record, int64_t /*samples*/) {
    return append(file_, record.line + "\n");
}

int MetricsFile::set_aside() {
    for (int number = 1;; ++number) {
        const std::string other = fmt::format("{}/metrics-{}.jsonl", folder_, number);
        if (::link(path().c_str(), other.c_str()) == 0) {
            log_warn("launch", "{} of an earlier run is now {}", path(), other);
            break;
        }
        if (errno != EEXIST) return -errno;
    }
    if (::unlink(path().c_str()) != 0) return -errno;
    UniqueFd begun = open_for_append(path());
    static_cast<void>(::flock(begun.get(), LOCK_EX | LOCK_NB));
    file_ = std::move(begun);
    return 0;
}

}  // namespace dslaunch::launch
