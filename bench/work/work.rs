// Rust: maps, strings, sorting, trait objects, threads and channels, for ever.
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;

trait Shape {
    fn area(&self, depth: u32) -> f64;
}
struct Square(f64);
struct Pair(Box<dyn Shape>, Box<dyn Shape>);
impl Shape for Square {
    fn area(&self, _depth: u32) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Pair {
    fn area(&self, depth: u32) -> f64 {
        self.0.area(depth + 1) + self.1.area(depth + 1)
    }
}

fn tree(depth: u32) -> Box<dyn Shape> {
    if depth == 0 {
        Box::new(Square(depth as f64 + 1.5))
    } else {
        Box::new(Pair(tree(depth - 1), tree(depth - 1)))
    }
}

fn turn(seed: u64) -> usize {
    let mut map: HashMap<String, u64> = HashMap::new();
    for i in 0..3000u64 {
        *map.entry(format!("k{}", (i * 7919 + seed) % 1000)).or_insert(0) += i;
    }
    let sorted: BTreeMap<_, _> = map.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let text = sorted.iter().map(|(k, v)| format!("{}={}", k, v)).collect::<Vec<_>>().join(",");
    let mut words: Vec<&str> = text.split(',').collect();
    words.sort_by(|a, b| b.cmp(a));
    words.len() + tree(9).area(0) as usize
}

fn main() {
    let (sender, receiver) = mpsc::sync_channel(4);
    for n in 0..2 {
        let sender = sender.clone();
        std::thread::spawn(move || loop {
            if sender.send(turn(n)).is_err() {
                return;
            }
        });
    }
    for _ in receiver {}
}
