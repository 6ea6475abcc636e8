#include "launch/process/spawn.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/error.h"
#include "launch/transport/tree/tree_transport.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Keeps the limits of this process, and restores them at the end.
class Limits {
  public:
    Limits() { REQUIRE(::getrlimit(RLIMIT_NOFILE, &saved_) == 0); }
    Limits(const Limits&) = delete;
    Limits& operator=(const Limits&) = delete;
    ~Limits() { ::setrlimit(RLIMIT_NOFILE, &saved_); }
    void set_soft(rlim_t soft) const {
        const rlimit wanted{soft, saved_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &wanted) == 0);
    }
    [[nodiscard]] static rlim_t soft() {
        rlimit now{};
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
        return now.rlim_cur;
    }
    [[nodiscard]] rlim_t hard() const { return saved_.rlim_max; }

  private:
    rlimit saved_{};
};

JobSpec job_on(size_t hosts, TransportKind transport) {
    JobSpec spec;
    spec.transport = transport;
    for (size_t i = 0; i < hosts; ++i) {
        spec.nodes.emplace_back();
        spec.nodes.back().name = fmt::format("n{}", i);
    }
    return spec;
}

}  // namespace

TEST_CASE("the limit of open files is raised only when it is needed, and to the hard one") {
    const Limits limits;
    limits.set_soft(128);
    CHECK(raise_descriptor_limit(128) == 128);
    CHECK(Limits::soft() == 128);
    CHECK(raise_descriptor_limit(129) == limits.hard());
    CHECK(Limits::soft() == limits.hard());
}

TEST_CASE("a command on many hosts makes room for their connections, agents here inherit nothing") {
    const Limits limits;
    limits.set_soft(256);
    (void)make_job_transport(job_on(40, TransportKind::kOpenSsh));
    CHECK(Limits::soft() == 256);
    (void)make_job_transport(job_on(400, TransportKind::kLocal));
    CHECK(Limits::soft() == 256);
    (void)make_job_transport(job_on(400, TransportKind::kOpenSsh));
    CHECK(Limits::soft() == limits.hard());
}

TEST_CASE("more hosts than there can be connections are refused with what to do") {
    const Limits limits;
    const size_t hosts = limits.hard() / 4 + 1;
    if (hosts > 2'000'000) {
        WARN("SKIPPED: hosts beyond the limit because the hard limit of open files is too high");
        return;
    }
    JobSpec spec = job_on(hosts, TransportKind::kOpenSsh);
    CHECK_THROWS_WITH(make_job_transport(spec),
                      Catch::Contains("open files") && Catch::Contains("--fanout"));
    spec.fanout = 32;
    CHECK_NOTHROW(make_job_transport(spec));
}
