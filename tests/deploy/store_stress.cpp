// Two threads change a graph at full speed, in writes that keep what `Reader::check` asks of every snapshot.
// Usage: store_stress SECONDS. Prints how much was written and read, and ends with 1 at the first wrong snapshot.
#include <chrono>
#include <cstdio>

#include "graph_store/neighbourhood.h"

using namespace dacergnn;
using namespace graph_store;

// A ball is in one box, red or blue. All leaves are below person 0.
enum { kPerson, kBox, kBall, kLeaf };
enum { kKnows, kRed, kBlue, kBelow };
constexpr Number kPeople = 24, kBoxes = 12, kBalls = 300, kLeaves = 60;
constexpr Number kWidths[] = {1, 3, 0, 2};
constexpr Relation kRelations[] = {{kPerson, kPerson}, {kBall, kBox}, {kBall, kBox}, {kLeaf, kPerson}};

// What writers know of the graph. It changes only within writes.
struct Plan {
  std::vector<std::pair<Number, Number>> friends;  // They know each other.
  std::vector<std::pair<int, Number>> homes;       // The colour and the box of each ball.
  std::vector<Number> leaves;
  float round = 0;
};

struct World {
  Store store{kWidths, kRelations};
  std::vector<Number> people, boxes, balls;
  Plan plan;

  World() {
    store.write([&](Write &write) {
      people = added(write, kPerson, kPeople);
      boxes = added(write, kBox, kBoxes);
      balls = added(write, kBall, kBalls);
      for (const Number ball : balls) {
        plan.homes.emplace_back(kRed, boxes[0]);
        write.add_edges(kRed, 1, &ball, &boxes[0]);
      }
      for (Number i = 0; i < kLeaves; ++i) plan.leaves.push_back(added_leaf(write));
    });
  }

  static std::vector<Number> added(Write &write, Number type, Number count) {
    const std::vector<float> features(count * kWidths[type]);
    std::vector<Number> ids(count);
    write.add_nodes(type, count, features.data(), ids.data());
    return ids;
  }

  Number added_leaf(Write &write) {
    const float features[] = {plan.round, -plan.round};
    Number leaf;
    write.add_nodes(kLeaf, 1, features, &leaf);
    write.add_edges(kBelow, 1, &leaf, &people[0]);
    return leaf;
  }
};

class Writer {
 public:
  Writer(World &world, std::uint64_t key) : world_(world), plan_(world.plan), random_(key) {}

  // Does one write. It is given up in its middle now and then, which nobody may notice.
  void step() {
    struct GivenUp {};
    try {
      world_.store.write([&](Write &write) {
        const bool stops = random_.below(8) == 0;
        const Plan before = stops ? plan_ : Plan();
        do change(write);
        while (random_.below(3));
        if (stops) {
          plan_ = before;
          throw GivenUp();
        }
      });
      ++finished;
    } catch (const GivenUp &) {
    }
  }

  Number finished = 0;

 private:
  void change(Write &write) {
    switch (random_.below(4)) {
      case 0:
        return random_.below(2) || plan_.friends.empty() ? meet(write) : part(write);
      case 1:
        return move_ball(write);
      case 2:
        return replace_leaf(write);
      default:
        return paint(write);
    }
  }

  Number any(const std::vector<Number> &ids) { return ids[random_.below(ids.size())]; }

  void meet(Write &write) {
    if (plan_.friends.size() > 200) return part(write);
    const Number pair[] = {any(world_.people), any(world_.people)}, back[] = {pair[1], pair[0]};
    write.add_edges(kKnows, 2, pair, back);
    plan_.friends.emplace_back(pair[0], pair[1]);
  }

  void part(Write &write) {
    std::swap(plan_.friends[random_.below(plan_.friends.size())], plan_.friends.back());
    const auto [one, other] = plan_.friends.back();
    const Number pair[] = {one, other}, back[] = {other, one};
    write.remove_edges(kKnows, 2, pair, back);
    plan_.friends.pop_back();
  }

  void move_ball(Write &write) {
    const Number ball = (Number)random_.below(kBalls);
    auto &[colour, box] = plan_.homes[ball];
    write.remove_edges(colour, 1, &world_.balls[ball], &box);
    colour = random_.below(2) ? kRed : kBlue;
    box = any(world_.boxes);
    write.add_edges(colour, 1, &world_.balls[ball], &box);
  }

  void replace_leaf(Write &write) {
    Number &leaf = plan_.leaves[random_.below(kLeaves)];
    write.remove_nodes(kLeaf, 1, &leaf);
    leaf = world_.added_leaf(write);
  }

  void paint(Write &write) {
    ++plan_.round;
    const std::vector<float> colours(kBoxes * kWidths[kBox], plan_.round);
    write.set_features(kBox, kBoxes, world_.boxes.data(), colours.data());
  }

  World &world_;
  Plan &plan_;
  dacergnn::sampling::Random random_;
};

class Reader {
 public:
  explicit Reader(const World &world, std::uint64_t key) : world_(world), random_(key) {}

  // Returns what is wrong with a snapshot of now, null if nothing is.
  const char *check() {
    const Snapshot snapshot = world_.store.snapshot();
    const bool sampled = random_.below(4) == 0;
    const Number all[] = {-1, -1, -1, -1}, few[] = {2, 3, 1, 5};
    const std::span<const Number> fanouts = sampled ? few : all;
    neighbourhood(snapshot, kPerson, world_.people, fanouts, random_.next(), batch_);
    if (const char *wrong = sampled ? check_leaves(-1) : check_people(snapshot)) return wrong;
    neighbourhood(snapshot, kBox, world_.boxes, fanouts, random_.next(), batch_);
    if (const char *wrong = check_boxes(sampled)) return wrong;
    ++read;
    return nullptr;
  }

  Number read = 0;

 private:
  const char *check_people(const Snapshot &snapshot) {
    const auto edges = batch_.edges(kKnows);
    const Number count = (Number)edges.size() / 2;
    if (count != snapshot.count_edges(kKnows)) return "the number of edges differs from their count";
    balance_.assign(kPeople * kPeople, 0);
    for (Number edge = 0; edge < count; ++edge) {
      ++balance_[edges[edge] * kPeople + edges[count + edge]];
      --balance_[edges[count + edge] * kPeople + edges[edge]];
    }
    for (const Number number : balance_)
      if (number) return "someone knows a person who does not know them";
    if (snapshot.count_nodes(kLeaf) != kLeaves) return "a write of leaves was seen in parts";
    return check_leaves(kLeaves);
  }

  const char *check_leaves(Number count) {
    const auto features = batch_.features(kLeaf);
    if (count >= 0 && (Number)features.size() != count * kWidths[kLeaf]) return "the number of leaves has changed";
    for (std::size_t i = 0; i < features.size(); i += 2)
      if (features[i] != -features[i + 1]) return "the features of a leaf do not fit together";
    return nullptr;
  }

  const char *check_boxes(bool sampled) {
    for (const float colour : batch_.features(kBox))
      if (colour != batch_.features(kBox)[0]) return "boxes have different colours";
    if (sampled) return nullptr;
    if (batch_.edges(kRed).size() + batch_.edges(kBlue).size() != 2 * kBalls) return "a ball is not in one box";
    return batch_.ids(kBall).size() == kBalls ? nullptr : "a ball is in no box";
  }

  const World &world_;
  dacergnn::sampling::Random random_;
  Batch batch_;
  std::vector<Number> balance_;
};

int main(int, char **arguments) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(arguments[1]));
  World world;
  std::atomic<bool> stop = false;
  std::atomic<const char *> wrong = nullptr;
  std::atomic<Number> written = 0, read = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        Writer writer(world, i);
        while (!stop) writer.step();
        written += writer.finished;
      });
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&, i] {
        Reader reader(world, i);
        while (!stop)
          if (const char *found = reader.check()) {
            wrong = found;
            stop = true;
          }
        read += reader.read;
      });
    while (!stop && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop = true;
  }
  std::printf("%lld writes and %lld snapshots\n", (long long)written, (long long)read);
  if (wrong) std::printf("wrong: %s\n", wrong.load());
  return wrong || !written || !read;
}
