"""Studies of single questions: peak, noise, layouts, lowering, neighbours."""
