//! Repeated minimum of some keys: a tournament tree in which the smaller of two keys wins.

/// The keys, and the winner of each match. Of equal keys the lower index wins.
pub(super) struct Tournament {
    /// Padded with [`u64::MAX`] to a power of two, at least two.
    keys: Vec<u64>,
    /// Node 1 is the root; the children of node `i` are `2i` and `2i + 1`. The keys' indices follow after the nodes.
    winners: Vec<u32>,
}

impl Tournament {
    /// A tournament of `keys`; there must be fewer than 2^31.
    pub(super) fn new(mut keys: Vec<u64>) -> Self {
        let leaves = keys.len().next_power_of_two().max(2);
        keys.resize(leaves, u64::MAX);
        let mut winners = vec![0; leaves];
        winners.extend(0..leaves as u32);
        let mut tournament = Self { keys, winners };
        for node in (1..leaves).rev() {
            tournament.decide(node);
        }
        tournament
    }

    /// Index of the smallest key.
    pub(super) fn winner(&self) -> usize {
        self.winners[1] as usize
    }

    pub(super) fn key(&self, index: usize) -> u64 {
        self.keys[index]
    }

    /// The exclusive upper bound of the keys with which the winner would still win.
    #[inline]
    pub(super) fn wins_below(&self) -> u64 {
        let winner = self.winner();
        let mut node = self.keys.len() + winner;
        let mut end = u64::MAX;
        while node > 1 {
            let other = self.winners[node ^ 1] as usize;
            end = end.min(self.keys[other].saturating_add(u64::from(winner < other)));
            node /= 2;
        }
        end
    }

    /// Changes the key of `index`.
    #[inline]
    pub(super) fn set(&mut self, index: usize, key: u64) {
        self.keys[index] = key;
        let mut node = (self.keys.len() + index) / 2;
        while node > 0 {
            self.decide(node);
            node /= 2;
        }
    }

    #[inline]
    fn decide(&mut self, node: usize) {
        let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
        let right_wins = self.keys[right as usize] < self.keys[left as usize];
        self.winners[node] = if right_wins { right } else { left };
    }
}

#[cfg(test)]
mod tests {
    use super::Tournament;
    use hksim_testkit::Random;

    #[test]
    fn agrees_with_a_search_through_all_keys() {
        let mut random = Random::new(88_172);
        let mut next = |below: u64| random.below(below);
        for count in 1..20 {
            let mut keys: Vec<u64> = (0..count).map(|_| next(10)).collect();
            let mut tournament = Tournament::new(keys.clone());
            for _ in 0..300 {
                let winner = (0..keys.len()).min_by_key(|&index| keys[index]).unwrap();
                assert_eq!((tournament.winner(), tournament.key(winner)), (winner, keys[winner]));
                let wins =
                    |key: u64| (0..keys.len()).all(|other| other == winner || (key, winner) < (keys[other], other));
                let end = tournament.wins_below();
                assert!(count == 1 || (wins(end - 1) && !wins(end)), "{keys:?}: {winner} wins below {end}");
                let (index, key) = (next(count) as usize, next(10));
                keys[index] = key;
                tournament.set(index, key);
            }
        }
    }
}
