#include "health/health_schedule.h"

#include <algorithm>

namespace dslaunch::health {
namespace {

bool has_room(const LinkRound& round, const NodeLink& link) {
    return std::none_of(round.begin(), round.end(), [&](const NodeLink& other) {
        return other.from == link.from || other.from == link.to || other.to == link.from ||
               other.to == link.to;
    });
}

}  // namespace

std::vector<LinkRound> all_link_rounds(int node_count) {
    std::vector<LinkRound> rounds;
    // The nodes sit on a circle: the last one stays, and the others move on by one seat in each
    // round. If their number is odd, the last seat is empty.
    const int seats = node_count + node_count % 2;
    for (int round = 0; round + 1 < seats; ++round) {
        LinkRound there;
        LinkRound back;
        for (int i = 0; i < seats / 2; ++i) {
            const int a = i == 0 ? seats - 1 : (round + i) % (seats - 1);
            const int b = (round + seats - 1 - i) % (seats - 1);
            if (a >= node_count || b >= node_count) continue;
            there.push_back({a, b});
            back.push_back({b, a});
        }
        if (there.empty()) continue;
        rounds.push_back(std::move(there));
        rounds.push_back(std::move(back));
    }
    return rounds;
}

std::vector<LinkRound> rounds_of(const std::vector<NodeLink>& links) {
    std::vector<LinkRound> rounds;
    for (const NodeLink& link : links) {
        const auto found = std::find_if(rounds.begin(), rounds.end(), [&](const LinkRound& round) {
            return has_room(round, link);
        });
        if (found == rounds.end()) {
            rounds.push_back({link});
        } else {
            found->push_back(link);
        }
    }
    return rounds;
}

}  // namespace dslaunch::health
