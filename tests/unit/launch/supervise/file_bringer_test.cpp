// Files that come from a host, whose agent answers with the real code over a made-up transport:
// files that arrive, equal files that are not sent, and obstacles on either side.
#include "launch/supervise/file_bringer.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "launch/agent/command_answers.h"
#include "supervised_hosts.h"
#include "support/catch.h"
#include "support/skip.h"
#include "support/small_disk.h"
#include "unit/launch/files/travelling_files.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// Host n0. The launcher wants the files in its folder THERE, and puts them into HERE. The host is
// gone after PIECES_MAX pieces, and sends nothing more once it is SILENT.
struct GivingHost {
    TemporaryFolder folder;
    std::string there = folder.path() + "/there/";
    std::string here = folder.path() + "/here/";
    int pieces_max = 1 << 30;
    int pieces = 0;
    bool is_silent = false;

    Brought bring(const std::vector<std::string>& names, int64_t bytes_max = int64_t{1} << 40,
                  std::chrono::milliseconds standstill_max = 60s) {
        pieces = 0;
        const UniqueFd signals = no_signals();
        std::optional<FileBringer> bringer;
        FakeTransport transport([&](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind == FrameKind::kHello)
                return t.say(host, FrameKind::kAgentHello, encode(AgentHello{}));
            if (frame.kind != FrameKind::kFetch || is_silent) return;
            FetchRequest request = decode<FetchRequest>(frame.payload);
            if (request.part == FetchPart::kPiece && ++pieces > pieces_max)
                return t.end(host, "the ssh connection was lost", -1);
            request.path.replace(0, here.size(), there);
            t.say(host, FrameKind::kFetched, encode(answer_fetch(request, [] {})));
        });
        HostAddress address;
        address.name = "n0";
        Fleet fleet({address}, transport, signals.get());
        fleet.connect(5s, false);
        BringRules rules{{}, bytes_max, standstill_max};
        for (const std::string& name : names) rules.paths.push_back(here + name);
        bringer.emplace(fleet, 0, rules);
        struct Listener : FleetListener {
            FileBringer* to = nullptr;
            void take_frame(size_t host, const Frame& frame) override { to->take(host, frame); }
        } listener;
        listener.to = &*bringer;
        fleet.listen(&listener);
        Brought brought = bringer->run();
        fleet.listen(nullptr);
        return brought;
    }
};

}  // namespace

TEST_CASE("a file that is brought has the content, mode and time of the original") {
    GivingHost host;
    std::vector<std::string> names;
    int64_t bytes = 0;
    for (size_t i = 0; i < std::size(kTravelLengths); ++i) {
        names.push_back(fmt::format("folder/f{}", i));
        make_old_file(host.there + names.back(), i, i % 2 == 0 ? 0640 : 0600);
        bytes += static_cast<int64_t>(kTravelLengths[i]);
    }
    const Brought brought = host.bring(names);
    INFO(brought.error);
    CHECK(brought.state == Brought::State::kBrought);
    CHECK(brought.bytes == bytes);
    for (const std::string& name : names) check_travelled(host.there + name, host.here + name);
    CHECK(host.bring(names).state == Brought::State::kHere);
    CHECK(host.pieces == 0);
}

TEST_CASE("what is here already is not sent, and of what differs only the chunks that do") {
    GivingHost host;
    std::string content = random_bytes(3 * kWholeChunk, 1);
    write_file(host.there + "f", content);
    write_file(host.here + "f", content);
    ::utimensat(AT_FDCWD, (host.here + "f").c_str(), nullptr, 0);
    CHECK(host.bring({"f"}).state == Brought::State::kHere);
    CHECK(host.pieces == 0);
    content[kWholeChunk + 7] = static_cast<char>(content[kWholeChunk + 7] + 1);
    write_file(host.there + "f", content);
    CHECK(host.bring({"f"}).state == Brought::State::kBrought);
    CHECK(host.pieces == kPushChunkBytes / kPushPieceBytes);
    CHECK(content_of(host.here + "f") == content);
}

TEST_CASE("files that are too large together stay where they are, unless they are here") {
    GivingHost host;
    write_file(host.there + "a", random_bytes(1000, 1));
    write_file(host.there + "b", random_bytes(1001, 2));
    const Brought large = host.bring({"a", "b"}, 2000);
    CHECK(large.state == Brought::State::kTooLarge);
    CHECK(large.bytes == 2001);
    CHECK_FALSE(fs::exists(host.here));
    CHECK(host.bring({"a", "b"}, 2001).state == Brought::State::kBrought);
    CHECK(host.bring({"a", "b"}, 2000).state == Brought::State::kHere);
}

TEST_CASE("what keeps a file from coming is told, and the host's copy stays") {
    GivingHost host;
    CHECK(host.bring({"f"}).state == Brought::State::kNothing);
    fs::create_directories(host.there + "f");
    const Brought no_file = host.bring({"f"});
    CHECK(no_file.state == Brought::State::kFailed);
    CHECK(no_file.code == ExitCode::kHosts);
    CHECK(no_file.error == host.there + "f: not a plain file");
    fs::remove(host.there + "f");

    const std::string content = random_bytes(2 * kWholeChunk, 1);
    write_file(host.there + "f", content);
    fs::create_directories(host.here + "f");
    const Brought folder = host.bring({"f"});
    CHECK(folder.code == ExitCode::kDisk);
    CHECK(folder.error == host.here + "f: the path is a folder");
    fs::remove(host.here + "f");

    host.is_silent = true;
    const Brought silent = host.bring({"f"}, 1 << 30, 100ms);
    CHECK(silent.code == ExitCode::kHosts);
    CHECK_THAT(silent.error, Catch::Contains("the host has sent no data"));
    CHECK(content_of(host.there + "f") == content);
}

TEST_CASE("what came before the connection was lost is not sent again") {
    GivingHost host;
    const std::string content = random_bytes(3 * kWholeChunk, 1);
    write_file(host.there + "f", content);
    const int all = static_cast<int>(3 * kPushChunkBytes / kPushPieceBytes);
    host.pieces_max = all - 1;  // so that more than one chunk has been taken
    const Brought lost = host.bring({"f"});
    CHECK(lost.state == Brought::State::kFailed);
    CHECK(lost.code == ExitCode::kHosts);
    CHECK_THAT(lost.error, Catch::Contains("the ssh connection was lost"));
    CHECK_FALSE(fs::exists(host.here + "f"));
    host.pieces_max = 1 << 30;
    // The first try's last write may still be under way.
    CHECK(wait_until([&] { return host.bring({"f"}).state == Brought::State::kBrought; }));
    CHECK(host.pieces < all);
    CHECK(content_of(host.here + "f") == content);
}

TEST_CASE("a full disk of the launcher's is a sentence, and nothing is left on it") {
    GivingHost host;
    if (!mount_small_disk(host.here, "size=1m"))
        return report_skipped("a full disk of the launcher's", "mounting one needs root");
    write_file(host.there + "f", random_bytes(2U << 20, 1));
    const Brought full = host.bring({"f"});
    CHECK(full.code == ExitCode::kDisk);
    CHECK_THAT(full.error,
               Catch::Contains("f: No space left on device (ENOSPC): 2.0 MiB are needed, "));
    CHECK(fs::is_empty(host.here));
    ::umount2(host.here.c_str(), MNT_DETACH);
}

TEST_CASE("at the end of a training the weights come to the launcher, which names the host") {
    const TemporaryFolder folder;
    const std::string there = folder.path() + "/there";
    JobSpec spec = two_per_node(2, TargetKind::kModel);
    spec.output_directory = folder.path() + "/run";
    fs::create_directories(spec.output_directory);
    write_file(there + "/model.safetensors", random_bytes(3000, 1));
    write_file(there + "/model.pt", random_bytes(4000, 2));
    const auto agent = good_agent(all_end_well);
    const auto transport = [&] {
        return FakeTransport([&](FakeTransport& t, size_t host, const Frame& frame) {
            if (frame.kind != FrameKind::kFetch) return agent(t, host, frame);
            CHECK(host == 0);
            FetchRequest request = decode<FetchRequest>(frame.payload);
            request.path.replace(0, spec.output_directory.size(), there);
            t.say(host, FrameKind::kFetched, encode(answer_fetch(request, [] {})));
        });
    };
    SECTION("they are brought") {
        FakeTransport hosts = transport();
        CHECK(run(spec, hosts).exit_code == 0);
        for (const char* name : {"/model.safetensors", "/model.pt"})
            CHECK(content_of(spec.output_directory + name) == content_of(there + name));
    }
    SECTION("they are too large, which is no failure") {
        spec.bring_bytes_max = 6999;
        FakeTransport hosts = transport();
        CHECK(run(spec, hosts).exit_code == 0);
        CHECK_FALSE(fs::exists(spec.output_directory + "/model.pt"));
    }
    SECTION("nobody asks for them") {
        spec.bring_bytes_max = 0;
        FakeTransport hosts = transport();
        CHECK(run(spec, hosts).exit_code == 0);
        CHECK_FALSE(hosts.was_sent(FrameKind::kFetch));
    }
    SECTION("there are none") {
        fs::remove_all(there);
        FakeTransport hosts = transport();
        CHECK(run(spec, hosts).exit_code == 0);
    }
    SECTION("one cannot be read") {
        fs::remove(there + "/model.pt");
        fs::create_directories(there + "/model.pt");
        FakeTransport hosts = transport();
        CHECK(run(spec, hosts).exit_code == static_cast<int>(ExitCode::kHosts));
    }
}
