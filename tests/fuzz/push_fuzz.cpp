// libFuzzer entry: a launcher sends anything during a push. The receiver answers in order, writes
// nothing outside of the named place, and reports a file as complete only if it has the announced
// content. The first byte of each step selects its kind: a valid offer, list of chunks or piece,
// made from the bytes that follow, or any bytes read as one of these.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "launch/agent/push_receiver.h"
#include "launch/files/file_facts.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;

// Larger sizes, which the disk could really hold, are left to the tests of a full disk.
constexpr int64_t kSmallBytesMax = 64 << 10;

// A folder of this process. Files may arrive in its folder `in`; a file beside `in` must not
// change.
class Scratch {
  public:
    Scratch() {
        std::string name = (fs::temp_directory_path() / "dslaunch-push-fuzz-XXXXXX").string();
        DSL_CHECK(::mkdtemp(name.data()) != nullptr, "a folder for the fuzzer");
        root_ = name;
        ::setenv("XDG_CACHE_HOME", (root_ + "/cache").c_str(), 1);
        std::ofstream(root_ + "/beside") << "beside";
    }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(root_, ignored);
    }
    void clean() const {
        std::error_code ignored;
        fs::remove_all(in(), ignored);
    }
    void check_beside() const {
        for (const auto& entry : fs::directory_iterator(root_)) {
            const std::string name = entry.path().filename().string();
            DSL_CHECK(name == "in" || name == "beside" || name == "cache", "`{}` came to be", name);
        }
        DSL_CHECK(fs::file_size(root_ + "/beside") == 6, "the file beside is as it was");
    }
    [[nodiscard]] std::string in() const { return root_ + "/in"; }

  private:
    std::string root_;
};
const Scratch& scratch() {
    static const Scratch one;
    return one;
}

std::string hash_of(std::string_view content, bool hex) {
    Sha256 hash;
    hash.add(content);
    return hex ? hash.hex() : hash.raw();
}

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The steps of one launcher, and checks of the answers to them.
class Session {
  public:
    void step(uint8_t what, std::string_view bytes) {
        switch (what % 6) {
            case 0:
                return offer(good_offer(bytes));
            case 1:
                return receiver_.take_chunks(good_chunks());
            case 2:
                return receiver_.take_piece(next_piece(bytes));
            case 3:
                return offer(inside(decode<PushOffer>(bytes)));
            case 4:
                return receiver_.take_chunks(decode<PushChunks>(bytes));
            default:
                return receiver_.take_piece(decode<PushPiece>(bytes));
        }
    }

  private:
    PushOffer good_offer(std::string_view bytes) {
        const size_t cut = std::min(bytes.find('|'), bytes.size());
        content_ = bytes.substr(std::min(cut + 1, bytes.size()));
        sent_bytes_ = 0;
        PushOffer offer;
        offer.id = ++last_id_;
        offer.path = fmt::format("{}/{}", scratch().in(), bytes.substr(0, cut));
        offer.bytes = static_cast<int64_t>(content_.size());
        offer.mode = 0644;
        offer.hash = hash_of(content_, true);
        return offer;
    }
    PushChunks good_chunks() const {
        return {offer_.id, content_.empty() ? std::string() : hash_of(content_, false)};
    }
    // Returns the next piece, which is at most one byte longer than BYTES. If BYTES begin with `!`,
    // the piece is damaged.
    PushPiece next_piece(std::string_view bytes) {
        const auto at = static_cast<int64_t>(sent_bytes_);
        PushPiece piece{offer_.id, at, content_.substr(std::min(sent_bytes_, content_.size()))};
        piece.bytes.resize(std::min(piece.bytes.size(), bytes.size() + 1));
        sent_bytes_ += piece.bytes.size();
        if (bytes.starts_with('!') && !piece.bytes.empty()) piece.bytes.front() ^= 1;
        return piece;
    }
    static PushOffer inside(PushOffer offer) {
        offer.path = scratch().in() + "/" + offer.path;
        offer.source_path.clear();
        if (offer.bytes > kSmallBytesMax && offer.bytes <= kPushFileBytesMax) offer.bytes = 1;
        return offer;
    }

    void offer(const PushOffer& offer) {
        offer_ = offer;
        state_ = PushState::kFailed;
        answers_ = 0;
        receiver_.offer(offer);
        DSL_CHECK(answers_ == 1, "an offer has one answer");
    }
    void answered(const PushAnswer& answer) {
        ++answers_;
        DSL_CHECK(answer.id == offer_.id, "an answer is about the last offer");
        DSL_CHECK((answer.state == PushState::kFailed) == !answer.error.empty(), "a cause");
        const bool had_pieces = state_ == PushState::kWantsPieces || state_ == PushState::kTook;
        if (answer.state == PushState::kTook) DSL_CHECK(had_pieces, "a piece that was wanted");
        if (answer.state == PushState::kWantsPieces)
            DSL_CHECK(state_ == PushState::kWantsChunks, "after a list of chunks");
        if (answer.state == PushState::kDone || answer.state == PushState::kEqual) check_file();
        state_ = answer.state;
    }
    void check_file() const {
        const std::string there = content_of(offer_.path);
        DSL_CHECK(static_cast<int64_t>(there.size()) == offer_.bytes, "as long as was offered");
        if (offer_.hash == hash_of(content_, true))
            DSL_CHECK(there == content_, "what was announced is there");
    }

    PushOffer offer_;
    std::string content_;
    size_t sent_bytes_ = 0;
    int64_t last_id_ = 0;
    PushState state_ = PushState::kFailed;
    int answers_ = 0;
    PushReceiver receiver_{[this](const PushAnswer& answer) { answered(answer); }, [] {}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    constexpr size_t kHeadBytes = 2;  // the kind of a step, and its length in bytes
    std::string_view bytes(reinterpret_cast<const char*>(data), size_bytes);
    {
        Session session;
        try {
            while (bytes.size() >= kHeadBytes) {
                const size_t length = std::min<size_t>(static_cast<unsigned char>(bytes[1]),
                                                       bytes.size() - kHeadBytes);
                session.step(static_cast<uint8_t>(bytes[0]), bytes.substr(kHeadBytes, length));
                bytes.remove_prefix(kHeadBytes + length);
            }
        } catch (const Error& error) {
            // The agent gives up if a launcher breaks the order.
            DSL_CHECK(error.code() == ExitCode::kInternal, "{}", error.what());
            fuzz::check_shown(error.what());
        }
    }
    scratch().check_beside();
    scratch().clean();
    return 0;
}
