(* All rows of a person: python/dpgep/data/people.py. What a row adds to the sums is a vector f(row) of any length:
   the blocks of a release over their scales, a histogram, a clipped product, or any linear map of them.
   A person adds a mean of those with weights w >= 0 that follow from this person's rows. *)

From Proofs Require Import Vectors.

(* constants: what a person costs, where each row costs at most this *)
Definition of_one_row (bound : R) : R := bound.
(* end *)

Section Person.
Variables (row : Type) (d : nat) (f : row -> vector).

(* A person: m rows with weights. *)
Definition adds (m : nat) (w : nat -> R) (r : nat -> row) : vector := fun i => sum m (fun j => w j * f (r j) i).
Definition weights (m : nat) (w : nat -> R) := forall j, (j < m)%nat -> 0 <= w j.

(* Jensen's inequality: the squared distance of a mean to a point is at most the largest of a row. *)
Lemma mean_to_point m w r p bound : weights m w -> sum m w = 1 ->
  (forall j, (j < m)%nat -> squared d (minus (f (r j)) p) <= bound) -> squared d (minus (adds m w r) p) <= bound.
Proof.
  intros W S B.
  set (v := minus (adds m w r) p).
  assert (E : squared d v = sum m (fun j => w j * dot d (minus (f (r j)) p) v)).
  { unfold squared, dot at 1. rewrite (sum_ext d _ (fun i => sum m (fun j => w j * (minus (f (r j)) p i * v i)))).
    - rewrite sum_swap. apply sum_ext. intros. unfold dot. now rewrite sum_times.
    - intros i _. rewrite (sum_ext m _ (fun j => w j * f (r j) i * v i - w j * (p i * v i))).
      + rewrite sum_minus, !sum_times_right, S. unfold v at 1, minus at 1, adds. ring.
      + intros. unfold minus. ring. }
  assert (L : squared d v <= sum m (fun j => w j * ((bound + squared d v) / 2))).
  { rewrite E at 1. apply sum_le. intros j Hj. apply Rmult_le_compat_l; [now apply W|].
    pose proof (B j Hj). pose proof (squared_nonneg d (minus (minus (f (r j)) p) v)) as N.
    rewrite squared_minus in N. lra. }
  rewrite sum_times_right, S in L. lra.
Qed.

Lemma replaced_by_hull m w r m' w' r' bound :
  weights m w -> sum m w = 1 -> weights m' w' -> sum m' w' = 1 ->
  (forall one other, squared d (minus (f one) (f other)) <= bound) ->
  squared d (minus (adds m w r) (adds m' w' r')) <= bound.
Proof.
  intros W S W' S' B. apply mean_to_point; trivial. intros j _.
  assert (squared d (minus (f (r j)) (adds m' w' r')) = squared d (minus (adds m' w' r') (f (r j)))) as ->.
  { rewrite !squared_minus, (dot_sym d (f (r j))). ring. }
  apply mean_to_point; trivial.
Qed.

(* Replacing all rows of a person costs at most what replacing one row costs. *)
Theorem replaced m w r m' w' r' bound :
  weights m w -> sum m w = 1 -> weights m' w' -> sum m' w' = 1 ->
  (forall one other, squared d (minus (f one) (f other)) <= bound) ->
  squared d (minus (adds m w r) (adds m' w' r')) <= of_one_row bound.
Proof.
  unfold of_one_row. intros. apply Rle_trans with bound; [|lra]. now apply replaced_by_hull.
Qed.

(* Adding or removing all rows of a person costs at most what one row costs. *)
Theorem added m w r bound : weights m w -> sum m w = 1 ->
  (forall one, squared d (f one) <= bound) -> squared d (adds m w r) <= of_one_row bound.
Proof.
  unfold of_one_row.
  intros W S B. apply Rle_trans with bound; [|lra].
  assert (Z : forall x, squared d (minus x (fun _ => 0)) = squared d x).
  { intros. apply sum_ext. intros. unfold minus. ring. }
  rewrite <- Z. apply mean_to_point; trivial. intros. rewrite Z. apply B.
Qed.
End Person.

(* Weights that add up to less than one (survey weights, `rows=`): what is left of them is a row that adds nothing. *)
Section Weighted.
Variables (row : Type) (d : nat) (f : row -> vector).

Definition or_nothing (r : option row) : vector := match r with Some one => f one | None => fun _ => 0 end.

Lemma with_nothing m w r : (forall j, (j < m)%nat -> 0 <= w j) -> sum m w <= 1 -> exists w' r',
  weights (S m) w' /\ sum (S m) w' = 1 /\ (forall i, adds (option row) or_nothing (S m) w' r' i = adds row f m w r i).
Proof.
  intros W L.
  exists (fun j => if (j <? m)%nat then w j else 1 - sum m w), (fun j => if (j <? m)%nat then Some (r j) else None).
  assert (E : forall g, sum m (fun j => if (j <? m)%nat then g j else 1 - sum m w) = sum m g).
  { intros g. apply sum_ext. intros j Hj. apply Nat.ltb_lt in Hj. now rewrite Hj. }
  repeat split.
  - intros j Hj. destruct (Nat.ltb_spec j m); [now apply W | lra].
  - simpl. rewrite E, Nat.ltb_irrefl. ring.
  - intros i. unfold adds. simpl. rewrite Nat.ltb_irrefl. simpl. rewrite Rmult_0_r, Rplus_0_r.
    apply sum_ext. intros j Hj. apply Nat.ltb_lt in Hj. now rewrite Hj.
Qed.

(* Replaced, at most what two rows cost, or one row and nothing. *)
Theorem replaced_with_less_than_one m w r m' w' r' bound :
  (forall j, (j < m)%nat -> 0 <= w j) -> sum m w <= 1 -> (forall j, (j < m')%nat -> 0 <= w' j) -> sum m' w' <= 1 ->
  (forall one other, squared d (minus (f one) (f other)) <= bound) -> (forall one, squared d (f one) <= bound) ->
  0 <= bound -> squared d (minus (adds row f m w r) (adds row f m' w' r')) <= of_one_row bound.
Proof.
  intros W L W' L' B One P.
  destruct (with_nothing m w r W L) as (v & q & V & S & E).
  destruct (with_nothing m' w' r' W' L') as (v' & q' & V' & S' & E').
  replace (squared d _) with
    (squared d (minus (adds _ or_nothing (Datatypes.S m) v q) (adds _ or_nothing (Datatypes.S m') v' q'))).
  2: { apply sum_ext. intros. unfold minus. now rewrite E, E'. }
  unfold of_one_row. apply Rle_trans with bound; [|lra]. apply (replaced_by_hull _ d); trivial. (* of rows, and of nothing *)
  intros [one|] [other|]; unfold or_nothing; [apply B | | | ].
  - replace (squared d _) with (squared d (f one)); [apply One|]. apply sum_ext. intros. unfold minus. ring.
  - replace (squared d _) with (squared d (f other)); [apply One|]. apply sum_ext. intros. unfold minus. ring.
  - replace (squared d _) with 0; trivial. rewrite <- (sum_zero d). apply sum_ext. intros. unfold minus. ring.
Qed.
End Weighted.

(* Attained: a person may have one row. *)
Theorem of_one_row_is_attained : squared 1 (adds unit (fun _ _ => 1) 1 (fun _ => 1) (fun _ => tt)) = of_one_row 1.
Proof. unfold squared, dot, adds, of_one_row. simpl. lra. Qed.
