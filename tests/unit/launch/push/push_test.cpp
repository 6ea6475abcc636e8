// Pushes with the hosts' real code and a made-up transport: files that arrive, files that are not
// sent, and obstacles.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "base/error.h"
#include "launch/agent/push_receiver.h"
#include "launch/push/push_sender.h"
#include "support/catch.h"
#include "support/fake_transport.h"
#include "support/job_process.h"
#include "unit/launch/files/travelling_files.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;
using namespace std::chrono_literals;

namespace {

// Hosts whose agents have the real PushReceiver. The connection is lost after PIECES_MAX pieces.
struct Hosts {
    explicit Hosts(size_t count, int pieces_max = 1 << 30) : pieces_left(pieces_max) {
        for (size_t i = 0; i < count; ++i) {
            HostAddress address;
            address.name = fmt::format("n{}", i);
            addresses.push_back(address);
        }
    }
    void serve(FakeTransport& transport, size_t host, const Frame& frame) {
        if (frame.kind == FrameKind::kHello) {
            receivers.try_emplace(
                host,
                [&transport, host](const PushAnswer& answer) {
                    transport.say(host, FrameKind::kPushAnswer, encode(answer));
                },
                [] {});
            return transport.say(host, FrameKind::kAgentHello, encode(hello));
        }
        PushReceiver& receiver = receivers.at(host);
        if (frame.kind == FrameKind::kPushOffer) receiver.offer(decode<PushOffer>(frame.payload));
        if (frame.kind == FrameKind::kPushChunks)
            receiver.take_chunks(decode<PushChunks>(frame.payload));
        if (frame.kind == FrameKind::kPushPiece && pieces_left-- > 0)
            receiver.take_piece(decode<PushPiece>(frame.payload));
        if (pieces_left == 0) transport.end(host, "the ssh connection was lost", -1);
    }
    std::vector<PushResult> push(const std::vector<PushFile>& files) {
        const UniqueFd signals = test::no_signals();
        FakeTransport transport(
            [this](FakeTransport& t, size_t h, const Frame& f) { serve(t, h, f); });
        Fleet fleet(addresses, transport, signals.get());
        fleet.connect(5s, false);
        return PushSender(fleet, files).run();
    }

    std::vector<HostAddress> addresses;
    std::map<size_t, PushReceiver> receivers;
    AgentHello hello;
    int pieces_left;
};

}  // namespace

TEST_CASE("a pushed file has the content, mode and time of the original, whatever its length") {
    TemporaryFolder folder;
    std::vector<PushFile> files;
    for (size_t i = 0; i < std::size(kTravelLengths); ++i) {
        const std::string name = folder.path() + "/f" + std::to_string(i);
        make_old_file(name, i, i % 2 == 0 ? 0750 : 0600);
        files.push_back({name, folder.path() + "/new/folders/t" + std::to_string(i), {}, false});
    }
    Hosts hosts(1);
    const auto results = hosts.push(files);
    CHECK(results[0].error.empty());
    CHECK(results[0].files_sent == static_cast<int64_t>(std::size(kTravelLengths)));
    for (const PushFile& file : files) check_travelled(file.local_path, file.target_path);
    struct stat made {};
    REQUIRE(::stat((folder.path() + "/new").c_str(), &made) == 0);
    CHECK((made.st_mode & 0777) == 0755);
    // No other files are left beside them, and a second push sends nothing.
    CHECK(std::system(("ls -A " + folder.path() + "/new/folders | grep -q part").c_str()) != 0);
    CHECK(hosts.push(files)[0].files_equal == static_cast<int64_t>(std::size(kTravelLengths)));
}

TEST_CASE("a host with another kind of processor gets models and data, and no programs") {
    TemporaryFolder folder;
    Hosts hosts(1);
    hosts.hello.processor = "riscv64";
    PushJob job;
    job.hosts = hosts.addresses;
    job.make_transport = [&] {
        return std::make_unique<FakeTransport>([&](FakeTransport& t, size_t h, const Frame& f) {
            if (f.kind == FrameKind::kStop) return t.say(h, FrameKind::kGone);
            hosts.serve(t, h, f);
        });
    };
    write_file(folder.path() + "/model", "weights");
    job.files = {{folder.path() + "/model", folder.path() + "/there/model", {}, false}};
    CHECK(run_push(job)[0].result.error.empty());
    CHECK(content_of(folder.path() + "/there/model") == "weights");
    job.files.push_back({launcher_path(), launcher_path(), {}, false});
    const PushedHost refused = run_push(job)[0];
    CHECK_THAT(refused.result.error, Catch::Contains("programs are not sent") &&
                                         Catch::Contains("its dslaunch are riscv64"));
    CHECK_FALSE(refused.got_dslaunch);
}

TEST_CASE("of a file that changed only the chunks that did travel") {
    TemporaryFolder folder;
    std::string content = random_bytes(4 * kWholeChunk, 1);
    write_file(folder.path() + "/old", content);
    content[kWholeChunk + 7] = static_cast<char>(content[kWholeChunk + 7] + 1);
    write_file(folder.path() + "/new", content);
    Hosts hosts(1);
    const auto results = hosts.push({{folder.path() + "/new", folder.path() + "/old", {}, false}});
    CHECK(results[0].error.empty());
    CHECK(results[0].bytes_sent == kPushChunkBytes);
    CHECK(content_of(folder.path() + "/old") == content);
}

TEST_CASE("a push that was cut off goes on with what had arrived whole") {
    TemporaryFolder folder;
    const std::string content = random_bytes(4 * kWholeChunk, 2);
    write_file(folder.path() + "/from", content);
    const std::vector<PushFile> files = {
        {folder.path() + "/from", folder.path() + "/to", {}, false}};
    {
        // Two chunks and a half.
        Hosts cut(1, static_cast<int>(2 * kPushChunkBytes / kPushPieceBytes + 8));
        CHECK(cut.push(files)[0].error == "the ssh connection was lost");
    }
    CHECK(::access((folder.path() + "/to").c_str(), F_OK) != 0);
    Hosts again(1);
    const auto results = again.push(files);
    CHECK(results[0].error.empty());
    CHECK(results[0].bytes_sent == 2 * kPushChunkBytes);
    CHECK(content_of(folder.path() + "/to") == content);
}

TEST_CASE("two hosts that share a disk get one copy, and both are content") {
    TemporaryFolder folder;
    write_file(folder.path() + "/from", random_bytes(3 * kWholeChunk, 3));
    Hosts hosts(2);
    const auto results = hosts.push({{folder.path() + "/from", folder.path() + "/to", {}, false}});
    for (const PushResult& result : results) CHECK(result.error.empty());
    CHECK(results[0].bytes_sent + results[1].bytes_sent == 3 * kPushChunkBytes);
    CHECK(results[0].files_equal + results[1].files_equal == 1);
    CHECK(content_of(folder.path() + "/to") == content_of(folder.path() + "/from"));
}

TEST_CASE(
    "links, folders and strangers' files in the way are named, and nothing behind them is "
    "touched") {
    TemporaryFolder folder;
    const std::string at = folder.path() + "/";
    write_file(at + "from", "new");
    write_file(at + "victim", "precious");
    REQUIRE(::symlink((at + "victim").c_str(), (at + "link").c_str()) == 0);
    REQUIRE(::symlink((at + "victim").c_str(), (at + ".trap.dslaunch-part").c_str()) == 0);
    REQUIRE(::link((at + "victim").c_str(), (at + ".hard.dslaunch-part").c_str()) == 0);
    REQUIRE(::mkdir((at + "folder").c_str(), 0755) == 0);
    struct Row {
        std::string target, cause;
    };
    const Row rows[] = {{at + "link", "symbolic link"},
                        {at + "folder", "the path is a folder"},
                        {at + "trap", "ELOOP"},
                        {at + "hard", "is not a plain file of this user"},
                        {at + "from/below", "ENOTDIR"},
                        {at + "x/../y", "the path must be absolute"},
                        {"relative", "the path must be absolute"},
                        {"/proc/none/file", "cannot make or open"}};
    for (const Row& row : rows) {
        Hosts hosts(1);
        const auto results = hosts.push({{at + "from", row.target, {}, false}});
        INFO(row.target << ": " << results[0].error);
        CHECK(results[0].error.find(row.cause) != std::string::npos);
        CHECK(results[0].error.find(row.target) == 0);
    }
    CHECK(content_of(at + "victim") == "precious");
    CHECK(content_of(at + "from") == "new");
}

TEST_CASE("a library that the host has at its own place is not sent, unless an older one was") {
    TemporaryFolder folder;
    const std::string at = folder.path() + "/";
    write_file(at + "system", "library");
    const std::vector<PushFile> files = {{at + "system", at + "own", at + "system", false}};
    CHECK(Hosts(1).push(files)[0].files_equal == 1);
    CHECK(::access((at + "own").c_str(), F_OK) != 0);
    write_file(at + "own", "older one");
    CHECK(Hosts(1).push(files)[0].files_sent == 1);
    CHECK(content_of(at + "own") == "library");
}

TEST_CASE("what arrives damaged is refused and never gets the file's name") {
    TemporaryFolder folder;
    PushAnswer last;
    PushReceiver receiver([&](const PushAnswer& answer) { last = answer; }, [] {});
    PushOffer offer;
    offer.path = folder.path() + "/to";
    offer.bytes = 4;
    offer.mode = 0644;
    offer.hash = std::string(64, '0');
    receiver.offer(offer);
    REQUIRE(last.state == PushState::kWantsChunks);
    receiver.take_chunks({0, std::string(32, 'h')});
    REQUIRE(last.state == PushState::kWantsPieces);
    receiver.take_piece({0, 0, "evil"});
    CHECK(last.state == PushState::kFailed);
    CHECK(::access(offer.path.c_str(), F_OK) != 0);
    // Pieces out of order, or without a request, show a broken launcher.
    CHECK_THROWS_AS(receiver.take_chunks({0, std::string(32, 'h')}), Error);
    receiver.offer(offer);
    receiver.take_chunks({0, std::string(32, 'h')});
    CHECK_THROWS_AS(receiver.take_piece({0, 1, "evi"}), Error);
    CHECK_THROWS_AS(receiver.take_piece({0, 0, "evil and more"}), Error);
}

TEST_CASE("a file of before 1970 keeps its time, with what is left of its second") {
    TemporaryFolder folder;
    write_file(folder.path() + "/from", "old");
    const timespec times[2] = {{-7, 250'000'000}, {-7, 250'000'000}};
    REQUIRE(::utimensat(AT_FDCWD, (folder.path() + "/from").c_str(), times, 0) == 0);
    Hosts hosts(1);
    CHECK(
        hosts.push({{folder.path() + "/from", folder.path() + "/to", {}, false}})[0].error.empty());
    struct stat to {};
    REQUIRE(::stat((folder.path() + "/to").c_str(), &to) == 0);
    CHECK(to.st_mtim.tv_sec == -7);
    CHECK(to.st_mtim.tv_nsec == 250'000'000);
}

TEST_CASE("a file whose list of chunks fills more than a frame is refused on both sides") {
    TemporaryFolder folder;
    write_file(folder.path() + "/from", "");
    REQUIRE(::truncate((folder.path() + "/from").c_str(), kPushFileBytesMax + 1) == 0);
    Hosts hosts(1);
    CHECK_THROWS_WITH(hosts.push({{folder.path() + "/from", folder.path() + "/to", {}, false}}),
                      Catch::Contains("at most 2048.00 GiB can be sent as one file"));
    const std::string hash(2 * kPushHashBytes, 'a');
    for (const auto& [bytes, text] : std::map<int64_t, std::string>{
             {kPushFileBytesMax + 1, hash}, {INT64_MAX, hash}, {3, "../../x"}, {4, ""}}) {
        PushAnswer answer;
        PushReceiver receiver([&](const PushAnswer& said) { answer = said; }, [] {});
        receiver.offer({1, folder.path() + "/to", {}, bytes, 0644, 0, text});
        CHECK(answer.state == PushState::kFailed);
        CHECK(answer.error.find("cannot be sent") != std::string::npos);
    }
}

TEST_CASE("messages of a push read back as they were written, and refuse to be cut or longer") {
    const PushOffer offer{1, "/a", "/b", 2, 0644, 3, "hash"};
    const PushChunks chunks{4, "hashes"};
    const PushPiece piece{5, 6, std::string("\0bytes", 6)};
    const PushAnswer answer{7, PushState::kWantsPieces, {8, 9}, 10, "error"};
    CHECK(decode<PushOffer>(encode(offer)) == offer);
    CHECK(decode<PushChunks>(encode(chunks)) == chunks);
    CHECK(decode<PushPiece>(encode(piece)) == piece);
    CHECK(decode<PushAnswer>(encode(answer)) == answer);
    const std::string bytes = encode(answer);
    for (size_t length = 0; length < bytes.size(); ++length) {
        CHECK_THROWS_AS(decode<PushAnswer>(bytes.substr(0, length)), Error);
    }
    CHECK_THROWS_AS(decode<PushAnswer>(bytes + "x"), Error);
}
