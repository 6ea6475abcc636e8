#include "runtime/train/rank_facts.h"

#include <bit>

#include "base/text/wire.h"

namespace dslaunch::runtime {

std::string encode_facts(const RankFacts& facts) {
    const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
    WireWriter writer;
    writer.u64(bits(facts.loss)).u8(facts.has_rewards ? 1 : 0);
    writer.u64(bits(facts.rewards.chosen)).u64(bits(facts.rewards.rejected));
    writer.u64(bits(facts.rewards.accuracy));
    writer.i64(facts.rss_bytes).i64(facts.peak_rss_bytes).i64(facts.page_faults);
    writer.u64(bits(facts.data_wait_ms)).u64(bits(facts.compute_wait_ms)).u8(facts.end ? 1 : 0);
    writer.u8(static_cast<uint8_t>(facts.save));
    write_links(facts.links, writer);
    return writer.bytes();
}

RankFacts decode_facts(const std::string& bytes) {
    WireReader reader(bytes, "step facts of a rank");
    const auto number = [&reader] { return std::bit_cast<double>(reader.u64()); };
    RankFacts facts;
    facts.loss = number();
    facts.has_rewards = reader.u8() != 0;
    facts.rewards.chosen = number();
    facts.rewards.rejected = number();
    facts.rewards.accuracy = number();
    facts.rss_bytes = reader.i64();
    facts.peak_rss_bytes = reader.i64();
    facts.page_faults = reader.i64();
    facts.data_wait_ms = number();
    facts.compute_wait_ms = number();
    facts.end = reader.u8() != 0;
    facts.save = static_cast<SavePhase>(reader.u8());
    facts.links = read_links(reader);
    return facts;
}

}  // namespace dslaunch::runtime
