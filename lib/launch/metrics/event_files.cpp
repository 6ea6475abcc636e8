#include "launch/metrics/event_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/new_files.h"
#include "launch/machine/machine_name.h"
#include "launch/metrics/event_bytes.h"

namespace dslaunch::launch {
namespace {

double wall_time_s() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

bool is_deleted(const UniqueFd& file) {
    struct stat facts {};
    return ::fstat(file.get(), &facts) != 0 || facts.st_nlink == 0;
}

}  // namespace

std::string EventFiles::name() const {
    return fmt::format("TensorBoard's event files in {}", folder_);
}

int EventFiles::begin(int64_t samples, bool is_new_run) {
    file_.reset();
    first_ = is_new_run ? 0 : samples;
    return 0;
}

// Creates a file that only this process writes. As with TensorBoard's own writers, its name
// contains the time, the host, the process id and a number.
int EventFiles::open() {
    const double now = wall_time_s();
    const std::string name = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder_,
                                         static_cast<int64_t>(now), machine_name(), ::getpid());
    std::string path;
    for (bool has_folder = false; !file_.valid();) {
        path = fmt::format("{}.{}", name, number_++);
        constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
        file_.reset(::open(path.c_str(), kFlags, 0644));
        if (file_.valid() || errno == EEXIST) continue;  // EEXIST: the number is taken
        const int error = errno;
        if (error != ENOENT || has_folder || make_folders(folder_) != 0) return -error;
        has_folder = true;
    }
    end_ = 0;
    has_tail_ = false;
    int status = add(version_event(now));
    if (status == 0) status = add(session_start_event(now, first_));
    if (status != 0) {  // a file without its first messages is of no use
        ::unlink(path.c_str());
        file_.reset();
    }
    return status;
}

int EventFiles::add(std::string_view message) {
    if (has_tail_) {
        if (::ftruncate(file_.get(), end_) != 0) return -errno;
        has_tail_ = false;
    }
    const std::string record = tf_record(message);
    const int status = write_full(file_.get(), record);
    if (status == 0) {
        end_ += static_cast<off_t>(record.size());
    } else {
        has_tail_ = ::ftruncate(file_.get(), end_) != 0;
    }
    return status;
}

int EventFiles::write(const MetricsRecord& record, int64_t samples) {
    if (record.events.empty()) return 0;
    if (file_.valid() && is_deleted(file_)) {
        file_.reset();
        first_ = samples;
    }
    if (!file_.valid())
        if (const int status = open(); status != 0) return status;
    return add(scalars_event(wall_time_s(), samples, record.events));
}

}  // namespace dslaunch::launch
