// A disk that is full where a job's lines go.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/fd.h"
#include "launch/output/job_files.h"
#include "launch/output/job_output.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Leads descriptor FD to the file at PATH while this object lives.
class Led {
  public:
    Led(int fd, const std::string& path) : fd_(fd), before_(::dup(fd)) {
        const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        REQUIRE(file.valid());
        ::dup2(file.get(), fd);
    }
    Led(const Led&) = delete;
    Led& operator=(const Led&) = delete;
    ~Led() { ::dup2(before_.get(), fd_); }

  private:
    int fd_;
    UniqueFd before_;
};

JobSpec lost_lines_one_rank(TargetKind kind, const std::string& output) {
    JobSpec spec;
    spec.target_kind = kind;
    spec.world_size = 1;
    spec.output_directory = output;
    PlannedNode node;
    node.name = "n0";
    node.workers.emplace_back();
    node.workers.front().environment.world_size = 1;
    node.workers.front().command = {"program"};
    spec.nodes = {node};
    return spec;
}

}  // namespace

TEST_CASE("a full disk at a training's stdout is said once, and remembered for its end") {
    const TemporaryFolder folder;
    std::vector<std::string> reasons;
    std::vector<bool> ends;
    {
        const Led out(1, "/dev/full"), err(2, folder.path() + "/err");
        for (const TargetKind kind : {TargetKind::kModel, TargetKind::kProgram}) {
            const JobSpec spec = lost_lines_one_rank(kind, folder.path());
            StandardStreams streams;
            JobFiles files(spec);
            JobOutput output(spec, streams, files);
            ends.push_back(output.is_lost());
            reasons.push_back(output.lost_lines_text());
            for (int line = 0; line < 3; ++line) {
                output.ranks().add(0, OutputStream::kStdout, "line\n");
                ends.push_back(output.is_lost());
            }
            reasons.push_back(output.lost_lines_text());
        }
    }
    CHECK(ends == std::vector<bool>(8, false));
    const std::string reason =
        "lines of this job could not be written to stdout: No space left on device (ENOSPC)";
    // A program's own output is checked where its job ends.
    CHECK(reasons == std::vector<std::string>{"", reason, "", ""});
    CHECK(folder.read("err") == "dslaunch: warning: " + reason + "; the job continues\n");
}

TEST_CASE("lines of a training whose stdout and stderr are closed are lost without a fault") {
    const TemporaryFolder folder;
    std::string reason = "not asked";
    {
        const Led out(1, folder.path() + "/out"), err(2, folder.path() + "/err");
        // Writing fails as to a closed descriptor, whose number no other file may take here.
        const std::string path = folder.path() + "/in";
        const UniqueFd closed(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
        for (const int fd : {1, 2}) ::dup2(closed.get(), fd);
        const JobSpec spec = lost_lines_one_rank(TargetKind::kModel, folder.path());
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.ranks().add(0, OutputStream::kStdout, "line\n");
        output.ranks().add(0, OutputStream::kStderr, "line\n");
        static_cast<void>(output.is_lost());
        reason = output.lost_lines_text() + std::to_string(streams.fault(1));
    }
    CHECK(reason == std::to_string(EBADF));
}
